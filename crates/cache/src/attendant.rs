//! A caller that attends the runs that it waits for.

use std::{future::pending, sync::Arc};

use tokio::sync::watch;

use credbroker_runner::{Attendance, AttendanceNews, AttendanceReader, Attending};

/// A caller that attends each run that it waits for. The request says which run that is.
#[derive(Debug, Default)]
pub struct Attendant {
    run: watch::Sender<Option<Arc<Attendance>>>,
}

impl Attendant {
    /// Attends `run` until the result is dropped.
    pub(super) fn attend(&self, run: &Arc<Attendance>) -> Attending {
        self.run.send_replace(Some(Arc::clone(run)));
        run.attend()
    }

    /// Reads each run that it attends.
    pub fn read(&self) -> AttendantReader {
        AttendantReader { runs: self.run.subscribe(), current: None }
    }
}

/// Reads each run that an [`Attendant`] attends.
#[derive(Debug)]
pub struct AttendantReader {
    runs: watch::Receiver<Option<Arc<Attendance>>>,
    current: Option<AttendanceReader>,
}

impl AttendantReader {
    /// Waits until something is new. Cancel safe.
    pub async fn next(&mut self) -> AttendanceNews {
        loop {
            tokio::select! {
                biased;
                news = next_of(self.current.as_mut()) => return news,
                Ok(()) = self.runs.changed() => self.follow(),
                else => pending().await,
            }
        }
    }

    /// What is new now.
    pub fn news(&mut self) -> AttendanceNews {
        if self.runs.has_changed().unwrap_or_default() {
            self.follow();
        }
        self.current.as_mut().map(AttendanceReader::news).unwrap_or_default()
    }

    fn follow(&mut self) {
        self.current = self.runs.borrow_and_update().as_ref().map(Attendance::read);
    }
}

async fn next_of(reader: Option<&mut AttendanceReader>) -> AttendanceNews {
    match reader {
        Some(reader) => reader.next().await,
        None => pending().await,
    }
}
