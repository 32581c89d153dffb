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
pub(super) struct PendingChanges {
    /// From when on each file counts as complete.
    files: BTreeMap<PathBuf, Duration>,
    /// When a reading was asked for that no file is the reason of.
    asked: Option<Duration>,
}

impl PendingChanges {
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
mod tests;
