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
use crate::plugin::Environment;

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
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    #[test]
    fn only_the_stream_that_systemd_opened_is_the_journal() {
        let (stderr, other) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        let metadata = stderr.metadata().unwrap();
        let stream = format!("{}:{}", metadata.dev(), metadata.ino());
        let environment = Environment([("JOURNAL_STREAM".into(), stream.into())].into());
        assert!(is_stream(&stderr, &environment));
        assert!(!is_stream(&other, &environment));
        assert!(!is_stream(&stderr, &Environment::default()));
    }

    #[test]
    fn each_record_is_a_datagram_and_one_that_is_too_large_costs_no_other() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let journald = UnixDatagram::bind(&path).unwrap();
        let mut sink = JournalSink::open(&path).unwrap();
        let large = vec![b'x'; 8 << 20];
        sink.write_all(&[b"MESSAGE=a\n\0", large.as_slice(), b"\0MESSAGE=b\n\0"].concat()).unwrap();
        for expected in ["MESSAGE=a\n", "MESSAGE=b\n"] {
            let mut record = [0; 64];
            let length = journald.recv(&mut record).unwrap();
            assert_eq!(str::from_utf8(&record[..length]).unwrap(), expected);
        }
    }

    #[test]
    fn a_journald_that_was_restarted_gets_the_next_record() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        drop(UnixDatagram::bind(&path).unwrap());
        assert!(JournalSink::open(&path).is_err(), "nothing receives");
        std::fs::remove_file(&path).unwrap();
        let first = UnixDatagram::bind(&path).unwrap();
        let mut sink = JournalSink::open(&path).unwrap();
        drop(first);
        std::fs::remove_file(&path).unwrap();
        let second = UnixDatagram::bind(&path).unwrap();
        sink.write_all(b"MESSAGE=a\n\0").unwrap();
        assert_eq!(second.recv(&mut [0; 64]).unwrap(), 10);
    }
}
