//! The file of audit records, and the thread that writes it.

use std::{
    fs::{self, File, OpenOptions, Permissions},
    io::{self, Write as _},
    mem,
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::Path,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use credbroker_client::safety::{Unsafe, unsafe_file, unsafe_way};
use rustix::fs::OFlags;
use tokio_util::sync::CancellationToken;
use tracing::error;

use credbroker_observe::{
    audit::{AuditSink, gap},
    clock::Clock,
};

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
    /// Cancelled when the thread that writes has ended.
    ended: CancellationToken,
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
        queue.write_on_a_thread(path, file, clock)?;
        Ok(queue)
    }

    fn write_on_a_thread(&self, path: &Path, file: File, clock: Arc<dyn Clock>) -> io::Result<()> {
        let (writer, path, ended) = (self.clone(), path.to_owned(), self.shared.ended.clone().drop_guard());
        let started = thread::Builder::new().name("audit".to_owned()).spawn(move || {
            let _ended = ended;
            writer.run(&path, file, clock.as_ref());
        });
        started.map(drop)
    }

    /// Resolves when the thread that writes has ended, which happens only if it panics.
    pub(super) async fn ended(&self) {
        self.shared.ended.cancelled().await;
    }

    fn run(&self, path: &Path, mut file: File, clock: &dyn Clock) {
        let mut refused = None;
        loop {
            let (mut batch, lines, lost) = self.next_batch();
            if lost > 0 {
                batch.extend_from_slice(gap(clock.now().wall, lost).as_bytes());
                batch.push(b'\n');
            }
            if is_replaced(path, &file) {
                match open(path) {
                    Ok(newer) => (file, refused) = (newer, None),
                    Err(error) => {
                        let problem = error.to_string();
                        if refused.as_ref() != Some(&problem) {
                            error!(path = %path.display(), "the new audit file is not used; records go to the old one while it exists: {problem}");
                        }
                        refused = Some(problem);
                    }
                }
            }
            let is_written = exists(&file) && file.write_all(&batch).is_ok();
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

impl AuditSink for AuditFile {
    /// A line for which there is no room is lost, and counted.
    fn push(&self, line: &str) {
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

    fn flush(&self, limit: Duration) {
        let is_busy = |state: &mut FileState| state.writing || !state.pending.is_empty();
        drop(self.shared.emptied.wait_timeout_while(self.lock(), limit, is_busy));
    }
}

#[cfg(test)]
impl AuditFile {
    /// One whose disk is full until a file can be made at `path`.
    pub(super) fn failing(path: &Path, clock: Arc<dyn Clock>) -> Self {
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let queue = Self { shared: Arc::default() };
        queue.write_on_a_thread(path, full, clock).unwrap();
        queue
    }
}

/// Opens the file to append to it. A new file can be read by the broker's user only, with any umask. One that other
/// users can change or replace is refused.
fn open(path: &Path) -> io::Result<File> {
    let refuse = |by: Unsafe| {
        let problem = by.problem("read or change the records");
        Err(io::Error::new(io::ErrorKind::PermissionDenied, format!("{problem}, or name another file")))
    };
    if let Some(by) = unsafe_way(path.parent().unwrap_or(Path::new("/")))? {
        return refuse(by);
    }
    // A FIFO without a reader would block, or fail, forever.
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let mut options = OpenOptions::new();
    options.append(true).mode(0o600).custom_flags(flags);
    let file = match options.create_new(true).open(path) {
        Ok(file) => {
            file.set_permissions(Permissions::from_mode(0o600))?;
            file
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => options.create_new(false).open(path)?,
        Err(error) => return Err(error),
    };
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    unsafe_file(path, &found)?.into_iter().next().map_or(Ok(file), refuse)
}

/// Whether `file` has a name. What is written to one that was removed is lost.
fn exists(file: &File) -> bool {
    file.metadata().is_ok_and(|found| found.nlink() > 0)
}

/// Whether `path` no longer is `file`: another program has moved or removed it.
fn is_replaced(path: &Path, file: &File) -> bool {
    let Ok(own) = file.metadata() else { return true };
    fs::symlink_metadata(path).map_or(true, |found| (found.dev(), found.ino()) != (own.dev(), own.ino()))
}

#[cfg(test)]
mod tests;
