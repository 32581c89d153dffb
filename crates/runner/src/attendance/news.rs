//! Reading a run as it goes on.

use std::{fmt, sync::Arc, time::Duration};

use tokio::{sync::watch, time::Instant};

use super::{Attendance, State};

/// What is new about a run. The lines may have a device code, so `Debug` does not show them.
#[derive(Default)]
pub struct AttendanceNews {
    /// Lines of its stderr, sanitised.
    pub lines: Vec<Arc<str>>,
    /// How long it may still take, if that is not what it was before.
    pub time_left: Option<Duration>,
}

impl AttendanceNews {
    /// Whether nothing is new.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty() && self.time_left.is_none()
    }
}

impl fmt::Debug for AttendanceNews {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AttendanceNews").field("time_left", &self.time_left).finish_non_exhaustive()
    }
}

/// Reads a run as it goes on.
#[derive(Debug)]
pub struct AttendanceReader {
    /// Keeps the sender of `changes` alive.
    _attendance: Arc<Attendance>,
    changes: watch::Receiver<State>,
    /// The number of lines that were read.
    seen: u64,
    /// The limit that was read.
    end: Option<Instant>,
}

impl AttendanceReader {
    pub(super) fn new(attendance: Arc<Attendance>, changes: watch::Receiver<State>) -> Self {
        Self { _attendance: attendance, changes, seen: 0, end: None }
    }

    /// Waits until something is new. Cancel safe.
    pub async fn next(&mut self) -> AttendanceNews {
        loop {
            let news = self.news();
            if !news.is_empty() {
                return news;
            }
            drop(self.changes.changed().await);
        }
    }

    /// What is new now.
    pub fn news(&mut self) -> AttendanceNews {
        let state = self.changes.borrow_and_update();
        let lines = state.transcript.after(self.seen).collect();
        let end = state.started.and_then(|started| started.checked_add(state.limit()));
        let left = state.limit().saturating_sub(state.elapsed());
        let time_left = end.filter(|end| self.end != Some(*end)).map(|_| left);
        (self.seen, self.end) = (state.transcript.count(), end);
        AttendanceNews { lines, time_left }
    }
}
