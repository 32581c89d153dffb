//! The journal of systemd: whether stderr leads to it, and sending records to it.

use std::{
    io::{self, Write},
    os::{
        fd::{AsFd, BorrowedFd},
        unix::net::UnixDatagram,
    },
    path::{Path, PathBuf},
};

use super::render::END;
use credbroker_plugin::Environment;

/// Where journald takes records.
pub(super) const SOCKET: &str = "/run/systemd/journal/socket";

/// Whether `stderr` is the stream to the journal that systemd opened: `JOURNAL_STREAM` has its device and inode. A process
/// that was started by the service with another stderr inherits the variable, too.
pub(super) fn is_stream(stderr: impl AsFd, environment: &Environment) -> bool {
    let Some(named) = environment.get("JOURNAL_STREAM").and_then(|value| value.to_str()) else {
        return false;
    };
    rustix::fs::fstat(stderr).is_ok_and(|stat| format!("{}:{}", stat.st_dev, stat.st_ino) == named)
}

/// Sends one datagram per record. Only the thread of the log queue waits for journald.
#[derive(Debug)]
pub(super) struct JournalSink {
    socket: UnixDatagram,
    /// Resolved for each record: a journald that was restarted has another socket at this path.
    path: PathBuf,
}

impl JournalSink {
    /// Fails if journald does not take records there.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let socket = UnixDatagram::unbound()?;
        socket.connect(path)?;
        Ok(Self { socket: UnixDatagram::unbound()?, path: path.to_owned() })
    }
}

impl Write for JournalSink {
    /// Takes the first record of `batch`.
    fn write(&mut self, batch: &[u8]) -> io::Result<usize> {
        let end = batch.iter().position(|byte| *byte == END).unwrap_or(batch.len());
        let record = batch.get(..end).unwrap_or_default();
        match self.socket.send_to(record, &self.path) {
            // Without its largest values, which no event of ours has, it would fit. It is lost instead of all others.
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::MSGSIZE.raw_os_error()) => {}
            sent => drop(sent?),
        }
        Ok((end + 1).min(batch.len()))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsFd for JournalSink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests;
