//! Plugin runs over time, as a line of bars.

use std::collections::{HashMap, VecDeque};

use credbroker_client::admin::CredentialState;

const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// The longest history.
const MOST: usize = 200;

/// The runs between two readings, of the last readings.
#[derive(Debug, Default)]
pub(super) struct Runs {
    /// Of each key, the runs until the last reading. `None`: there was no reading yet.
    known: Option<HashMap<String, u64>>,
    history: VecDeque<u64>,
    pub(super) total: u64,
}

impl Runs {
    pub(super) fn read(&mut self, credentials: &[CredentialState]) {
        let now: HashMap<_, _> = credentials.iter().map(|held| (held.key.clone(), held.runs)).collect();
        if let Some(known) = &self.known {
            // A key that was forgotten begins at 0 again.
            let since = |key: &String, runs: u64| match known.get(key) {
                Some(before) if runs >= *before => runs - before,
                _ => runs,
            };
            let runs = now.iter().map(|(key, runs)| since(key, *runs)).sum();
            self.history.push_back(runs);
            self.total += runs;
        }
        if self.history.len() > MOST {
            self.history.pop_front();
        }
        self.known = Some(now);
    }

    /// The last `width` readings; the highest bar is the most runs.
    pub(super) fn bars(&self, width: usize) -> String {
        let shown = self.history.iter().skip(self.history.len().saturating_sub(width));
        let most = shown.clone().copied().max().unwrap_or_default().max(1);
        let level = |runs: u64| match runs {
            0 => 0,
            runs => usize::try_from((runs * 7).div_ceil(most)).unwrap_or(7),
        };
        shown.filter_map(|runs| BARS.get(level(*runs))).collect()
    }
}

#[cfg(test)]
mod tests {
    use credbroker_proto::v1;

    use super::*;

    fn held(key: &str, runs: u64) -> CredentialState {
        v1::CredentialState { key: key.into(), runs, ..v1::CredentialState::default() }.into()
    }

    #[test]
    fn runs_before_the_first_reading_do_not_count() {
        let mut runs = Runs::default();
        for reading in [[9, 0], [9, 1], [16, 1], [16, 3]] {
            runs.read(&[held("a", reading[0]), held("b", reading[1])]);
        }
        assert_eq!((runs.bars(10).as_str(), runs.total), ("▂█▃", 10));
        assert_eq!(runs.bars(2), "█▃");
    }

    #[test]
    fn new_and_forgotten_keys_count_from_nothing() {
        let mut runs = Runs::default();
        runs.read(&[held("a", 5)]);
        runs.read(&[held("a", 5), held("b", 2)]);
        runs.read(&[held("a", 1), held("b", 2)]);
        assert_eq!(runs.total, 3);
        for _ in 0..2 * MOST {
            runs.read(&[]);
        }
        assert_eq!(runs.bars(usize::MAX).chars().count(), MOST);
        assert!(runs.bars(5).chars().all(|bar| bar == '▁'));
    }
}
