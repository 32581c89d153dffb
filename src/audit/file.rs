//! The file of audit records, and the thread that writes it.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    mem,
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::Path,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use rustix::fs::OFlags;

use super::record::gap;
use crate::clock::Clock;

/// The most bytes that wait to be written; the writer may hold as many again.
const PENDING: usize = 512 * 1024;

/// Takes lines without waiting. Clones share one file.
#[derive(Clone, Debug)]
pub(super) struct AuditFile {
    shared: Arc<SharedFile>,
}

#[derive(Debug, Default)]
struct SharedFile {
    state: Mutex<FileState>,
    /// Signals that there is something to write.
    filled: Condvar,
    /// Signals that everything is written.
    emptied: Condvar,
}

#[derive(Debug, Default)]
struct FileState {
    pending: Vec<u8>,
    /// Number of lines in `pending`.
    lines: u64,
    /// Lines that were dropped, or could not be written, since the last line that was written.
    lost: u64,
    writing: bool,
}

impl AuditFile {
    /// Opens the file, and starts its thread.
    pub(super) fn start(path: &Path, clock: Arc<dyn Clock>) -> io::Result<Self> {
        let file = open(path)?;
        let queue = Self { shared: Arc::default() };
        let (writer, path) = (queue.clone(), path.to_owned());
        thread::Builder::new()
            .name("audit".to_owned())
            .spawn(move || writer.run(&path, file, clock.as_ref()))?;
        Ok(queue)
    }

    /// Queues a line, or counts it as lost.
    pub(super) fn push(&self, line: &str) {
        let mut state = self.lock();
        if state.pending.len() + line.len() >= PENDING {
            state.lost += 1;
            return;
        }
        state.pending.extend_from_slice(line.as_bytes());
        state.pending.push(b'\n');
        state.lines += 1;
        drop(state);
        self.shared.filled.notify_one();
    }

    /// Waits until everything is written, at most for `limit`.
    pub(super) fn flush(&self, limit: Duration) {
        let is_busy = |state: &mut FileState| state.writing || !state.pending.is_empty();
        drop(self.shared.emptied.wait_timeout_while(self.lock(), limit, is_busy));
    }

    fn run(&self, path: &Path, mut file: File, clock: &dyn Clock) {
        loop {
            let (mut batch, lines, lost) = self.next_batch();
            if lost > 0 {
                batch.extend_from_slice(gap(clock.now().wall, lost).as_bytes());
                batch.push(b'\n');
            }
            if is_replaced(path, &file)
                && let Ok(newer) = open(path)
            {
                file = newer;
            }
            let is_written = file.write_all(&batch).is_ok();
            let mut state = self.lock();
            state.writing = false;
            if !is_written {
                state.lost += lines + lost;
            }
            if state.pending.is_empty() {
                self.shared.emptied.notify_all();
            }
        }
    }

    fn next_batch(&self) -> (Vec<u8>, u64, u64) {
        let waited = self.shared.filled.wait_while(self.lock(), |state| state.pending.is_empty());
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        state.writing = true;
        (mem::take(&mut state.pending), mem::take(&mut state.lines), mem::take(&mut state.lost))
    }

    /// The state is consistent whenever the lock is free, so a poisoned lock is still usable.
    fn lock(&self) -> MutexGuard<'_, FileState> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
impl AuditFile {
    /// One whose disk is full until a file can be made at `path`.
    pub(super) fn failing(path: &Path, clock: Arc<dyn Clock>) -> Self {
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let queue = Self { shared: Arc::default() };
        let (writer, path) = (queue.clone(), path.to_owned());
        thread::spawn(move || writer.run(&path, full, clock.as_ref()));
        queue
    }
}

/// Opens the file to append to it. A new file is readable by the broker's user only.
fn open(path: &Path) -> io::Result<File> {
    // A FIFO without a reader would block, or fail, forever.
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let file = OpenOptions::new().append(true).create(true).mode(0o600).custom_flags(flags).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    Ok(file)
}

/// Whether `path` no longer is `file`: another program has moved or removed it.
fn is_replaced(path: &Path, file: &File) -> bool {
    let Ok(own) = file.metadata() else { return true };
    fs::symlink_metadata(path).map_or(true, |found| (found.dev(), found.ino()) != (own.dev(), own.ino()))
}
