//! Files that were in use and are now empty or missing. Pure: `now` is the time since boot.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

/// How long such a file counts as a problem. Some tools empty a file before they write it again.
pub(super) const ABSENCE_GRACE: Duration = Duration::from_secs(10);

/// Since when each such file has been so.
#[derive(Debug, Default)]
pub(super) struct Absences {
    since: BTreeMap<PathBuf, Duration>,
}

/// The files whose absence is a problem, and when it no longer is one.
#[derive(Debug, Eq, PartialEq)]
pub(super) struct Awaited {
    pub(super) files: Vec<PathBuf>,
    pub(super) until: Duration,
}

impl Absences {
    /// Notes that `absent` are all the files in use that are empty or missing at `now`. `None`: no absence is a problem.
    pub(super) fn observe(
        &mut self,
        absent: impl IntoIterator<Item = PathBuf>,
        now: Duration,
    ) -> Option<Awaited> {
        let before = std::mem::take(&mut self.since);
        self.since = absent
            .into_iter()
            .map(|file| {
                let since = before.get(&file).copied().unwrap_or(now);
                (file, since)
            })
            .collect();
        let until = |since: &Duration| since.saturating_add(ABSENCE_GRACE);
        let awaited = self.since.iter().filter(|(_, since)| now < until(since));
        let last = awaited.clone().map(|(_, since)| until(since)).max()?;
        Some(Awaited { files: awaited.map(|(file, _)| file.clone()).collect(), until: last })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    fn files(names: &[&str]) -> Vec<PathBuf> {
        names.iter().map(PathBuf::from).collect()
    }

    #[test]
    fn an_absence_is_a_problem_for_ten_seconds() {
        let mut absences = Absences::default();
        let awaited = Some(Awaited { files: files(&["a"]), until: secs(11) });
        assert_eq!(absences.observe(files(&["a"]), secs(1)), awaited);
        assert_eq!(absences.observe(files(&["a"]), secs(10)), awaited);
        assert_eq!(absences.observe(files(&["a"]), secs(11)), None);
        assert_eq!(absences.observe(files(&["a"]), secs(60)), None);
    }

    #[test]
    fn a_file_that_comes_back_has_its_ten_seconds_again() {
        let mut absences = Absences::default();
        absences.observe(files(&["a"]), secs(0));
        assert_eq!(absences.observe(files(&[]), secs(9)), None);
        let awaited = Some(Awaited { files: files(&["a"]), until: secs(22) });
        assert_eq!(absences.observe(files(&["a"]), secs(12)), awaited);
    }

    #[test]
    fn each_file_has_its_own_ten_seconds_and_the_last_decides() {
        let mut absences = Absences::default();
        absences.observe(files(&["a"]), secs(0));
        let both = Some(Awaited { files: files(&["a", "b"]), until: secs(15) });
        assert_eq!(absences.observe(files(&["a", "b"]), secs(5)), both);
        let one = Some(Awaited { files: files(&["b"]), until: secs(15) });
        assert_eq!(absences.observe(files(&["a", "b"]), secs(10)), one);
        assert_eq!(absences.observe(files(&["a", "b"]), secs(15)), None);
    }
}
