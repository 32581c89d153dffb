//! When the files are read again. Pure: `now` is the time since boot.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

/// A file is read when nothing has happened to it for this time.
pub(super) const QUIET: Duration = Duration::from_millis(250);
/// A file that was written and not closed is read after this time: its writer may never close it.
pub(super) const UNCLOSED: Duration = Duration::from_secs(10);

/// What happened to a file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Touch {
    /// It was written, and may be incomplete until it is closed.
    Written,
    /// It was closed, renamed, created or removed, or has other permissions.
    Settled,
}

/// The files that were touched since the last reading.
#[derive(Debug, Default)]
pub(super) struct Pending {
    /// From when on each file counts as complete.
    files: BTreeMap<PathBuf, Duration>,
    /// When a reading was asked for that no file is the reason of.
    asked: Option<Duration>,
}

impl Pending {
    /// Notes that `file` was touched at `now`.
    pub(super) fn touch(&mut self, file: PathBuf, touch: Touch, now: Duration) {
        let wait = match touch {
            Touch::Written => UNCLOSED,
            Touch::Settled => QUIET,
        };
        self.files.insert(file, now.saturating_add(wait));
    }

    /// Asks for a reading at `at`, or at an earlier time that was asked for before.
    pub(super) fn ask(&mut self, at: Duration) {
        self.asked = Some(self.asked.map_or(at, |asked| asked.min(at)));
    }

    /// When the files are to be read; `None`: when something happens. All files are read together, so every touched one
    /// must be complete.
    pub(super) fn due(&self) -> Option<Duration> {
        self.files.values().max().copied().or(self.asked)
    }

    /// Whether the files are to be read at `now`. If so, everything noted so far is forgotten.
    pub(super) fn take(&mut self, now: Duration) -> bool {
        let is_due = self.due().is_some_and(|due| due <= now);
        if is_due {
            *self = Self::default();
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// The file, what happened to it, and when, in milliseconds.
    type Touched = (&'static str, Touch, u64);

    fn touched(touches: &[Touched]) -> Pending {
        let mut pending = Pending::default();
        for (file, touch, millis) in touches {
            pending.touch(file.into(), *touch, at(*millis));
        }
        pending
    }

    #[test]
    fn a_file_is_read_once_it_was_closed_and_quiet() {
        use Touch::{Settled, Written};
        let table: [(&[Touched], u64); 6] = [
            (&[("a", Settled, 0)], 250),
            (&[("a", Settled, 0), ("a", Settled, 200)], 450),
            (&[("a", Written, 0)], 10_000),
            (&[("a", Written, 0), ("a", Written, 5_000), ("a", Settled, 5_001)], 5_251),
            (&[("a", Settled, 0), ("a", Written, 100)], 10_100),
            (&[("a", Settled, 0), ("b", Settled, 100), ("a", Settled, 50)], 350),
        ];
        for (touches, due) in table {
            let mut pending = touched(touches);
            assert_eq!(pending.due(), Some(at(due)), "{touches:?}");
            assert!(
                !pending.take(at(due - 1)) && pending.take(at(due)) && !pending.take(at(due)),
                "{touches:?}"
            );
        }
    }

    #[test]
    fn a_file_that_is_being_written_delays_the_reading_of_all() {
        let mut pending = touched(&[("a", Touch::Settled, 0), ("b", Touch::Written, 0)]);
        pending.ask(at(10));
        assert!(!pending.take(at(9_999)));
        assert!(pending.take(at(10_000)));
    }

    #[test]
    fn a_reading_that_was_asked_for_comes_at_its_time_or_with_the_next_change() {
        let mut pending = Pending::default();
        assert_eq!(pending.due(), None);
        pending.ask(at(9_000));
        pending.ask(at(5_000));
        pending.ask(at(7_000));
        assert_eq!(pending.due(), Some(at(5_000)));
        pending.touch("a".into(), Touch::Settled, at(1_000));
        assert_eq!(pending.due(), Some(at(1_250)));
        assert!(pending.take(at(1_250)));
        assert_eq!(pending.due(), None);
    }
}
