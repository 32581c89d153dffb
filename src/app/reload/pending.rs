//! When the files are read again. Pure: `now` is the time since boot.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

/// A file is read when nothing has happened to it for this time.
pub(super) const QUIET: Duration = Duration::from_millis(250);
/// The files are read this long after the first change, also if they are still being written: a writer may never close its
/// file.
pub(super) const PUT_OFF: Duration = Duration::from_secs(5);

/// What happened to a file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Touch {
    /// It was written, and may be incomplete until it is closed.
    Written,
    /// It was closed, renamed, created or removed, or has other permissions.
    Settled,
}

/// What happened since the last reading.
#[derive(Debug, Default)]
pub(super) struct PendingChanges {
    /// From when on each touched file counts as complete.
    files: BTreeMap<PathBuf, Duration>,
    /// When the first of them was touched.
    since: Option<Duration>,
    /// When a reading was asked for that no file is the reason of.
    asked: Option<Duration>,
    /// The latest time of a reading that a person or a program waits for.
    requested: Option<Duration>,
}

/// A reading that is due.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct DueReading {
    since: Option<Duration>,
    is_requested: bool,
}

impl DueReading {
    /// Whether it may be put off at `now`, because a file changed while it was read.
    pub(super) fn may_wait(&self, now: Duration) -> bool {
        !self.is_requested && self.since.is_none_or(|since| now < since.saturating_add(PUT_OFF))
    }
}

impl PendingChanges {
    /// Notes that `file` was touched at `now`.
    pub(super) fn touch(&mut self, file: PathBuf, touch: Touch, now: Duration) {
        let wait = match touch {
            Touch::Written => PUT_OFF,
            Touch::Settled => QUIET,
        };
        self.since.get_or_insert(now);
        self.files.insert(file, now.saturating_add(wait));
    }

    /// Asks for a reading at `at`, or at an earlier time that was asked for before.
    pub(super) fn ask(&mut self, at: Duration) {
        self.asked = Some(self.asked.map_or(at, |asked| asked.min(at)));
    }

    /// Asks for a reading at `now`, or a moment later if a file was touched just now, but not when it is complete.
    pub(super) fn request(&mut self, now: Duration) {
        self.requested.get_or_insert(now.saturating_add(QUIET));
    }

    /// Asks for another reading at `at`, because files changed at `now` while they were read. It may be put off no longer
    /// than the one `before`.
    pub(super) fn ask_again(&mut self, before: DueReading, now: Duration, at: Duration) {
        // A reading that could not wait has read what was pending.
        let since = before.since.filter(|_| before.may_wait(now)).unwrap_or(now);
        self.since = Some(self.since.map_or(since, |known| known.min(since)));
        self.ask(at);
    }

    /// When the files are to be read; `None`: when something happens. All files are read together, so every touched one
    /// must be complete, but they are not waited for without end.
    pub(super) fn due(&self) -> Option<Duration> {
        let complete = self.files.values().max().copied();
        if let Some(latest) = self.requested {
            return Some(complete.unwrap_or_default().min(latest));
        }
        let latest = self.since.map(|since| since.saturating_add(PUT_OFF));
        complete.map(|complete| latest.map_or(complete, |latest| latest.min(complete))).or(self.asked)
    }

    /// The reading that is due at `now`. If one is, everything noted so far is forgotten.
    pub(super) fn take(&mut self, now: Duration) -> Option<DueReading> {
        self.due().filter(|due| *due <= now)?;
        let Self { since, requested, .. } = std::mem::take(self);
        Some(DueReading { since, is_requested: requested.is_some() })
    }
}

#[cfg(test)]
mod tests;
