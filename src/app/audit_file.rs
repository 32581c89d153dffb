//! The file of audit records.

use std::{
    fs::{self, File, OpenOptions, Permissions},
    io::{self, Write as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::Path,
    sync::Arc,
    time::Duration,
};

use credbroker_client::safety::{Unsafe, unsafe_file, unsafe_way};
use rustix::fs::OFlags;
use tracing::error;

use super::queue::{Batch, ByteQueue};
use credbroker_observe::{
    audit::{AuditSink, gap},
    clock::Clock,
};

/// Takes lines without waiting. Clones share one file.
#[derive(Clone, Debug)]
pub(super) struct AuditFile(ByteQueue);

impl AuditFile {
    pub(super) fn start(path: &Path, clock: Arc<dyn Clock>) -> io::Result<Self> {
        Self::write_to(open(path)?, path, clock)
    }

    fn write_to(mut file: File, path: &Path, clock: Arc<dyn Clock>) -> io::Result<Self> {
        let (queue, path, mut refused) = (ByteQueue::default(), path.to_owned(), None);
        queue.start("audit", move |Batch { mut bytes, records, lost }| {
            if lost > 0 {
                bytes.extend_from_slice(gap(clock.now().wall, lost).as_bytes());
                bytes.push(b'\n');
            }
            if is_replaced(&path, &file) {
                match open(&path) {
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
            let is_written = exists(&file) && file.write_all(&bytes).is_ok();
            if is_written { 0 } else { records + lost }
        })?;
        Ok(Self(queue))
    }

    pub(super) async fn ended(&self) {
        self.0.ended().await;
    }
}

impl AuditSink for AuditFile {
    fn push(&self, line: &str) {
        self.0.push(format!("{line}\n").as_bytes());
    }

    fn flush(&self, limit: Duration) {
        self.0.flush(limit);
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
