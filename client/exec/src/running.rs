//! Whether a broker runs, as the kernel's list of locks says.

use std::{
    fs::{self, File},
    io::Read as _,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use credbroker_client::Socket;

/// Most bytes of the list that are read.
const MOST: u64 = 4 << 20;

/// Whether a live process holds the lock next to one of the paths of `socket`, as a broker does from before it listens until it
/// ends. Takes no lock itself: a broker that starts would find it taken.
pub(crate) fn is_running(socket: &Socket) -> bool {
    let locks: Vec<u64> = socket.candidates().flat_map(locks).collect();
    let mut list = String::new();
    let read = File::open("/proc/locks").and_then(|file| file.take(MOST).read_to_string(&mut list));
    !locks.is_empty() && read.is_ok() && list.lines().filter_map(locked).any(|inode| locks.contains(&inode))
}

/// The inodes of the lock files for a socket that is published as `path`, which can be a link.
fn locks(path: &Path) -> impl Iterator<Item = u64> {
    let target = fs::read_link(path).ok().and_then(|target| Some(path.parent()?.join(target)));
    let lock = |path: PathBuf| {
        let mut lock = path.into_os_string();
        lock.push(".lock");
        fs::metadata(lock).ok().map(|found| found.ino())
    };
    [Some(path.to_owned()), target].into_iter().flatten().filter_map(lock)
}

/// The inode of a line of `/proc/locks` about an exclusive `flock` that is held.
fn locked(line: &str) -> Option<u64> {
    let mut fields = line.split_ascii_whitespace().skip(1);
    if fields.next()? != "FLOCK" || fields.nth(1)? != "WRITE" {
        return None;
    }
    fields.nth(1)?.rsplit(':').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use credbroker_test_support::private_directory;
    use rustix::fs::{FlockOperation, flock};

    use super::*;

    #[test]
    fn a_line_of_an_exclusive_lock_names_its_file() {
        let table = [
            ("1: FLOCK  ADVISORY  WRITE 3157 fe:00:1310764 0 EOF", Some(1_310_764)),
            ("12: FLOCK  ADVISORY  READ 3157 fe:00:7 0 EOF", None),
            ("1: -> FLOCK  ADVISORY  WRITE 3157 fe:00:7 0 EOF", None),
            ("3: POSIX  ADVISORY  WRITE 1 fe:00:7 0 EOF", None),
            ("", None),
        ];
        for (line, inode) in table {
            assert_eq!(locked(line), inode, "{line}");
        }
    }

    #[test]
    fn a_broker_runs_as_long_as_its_lock_is_held() {
        let directory = private_directory();
        let path = directory.path().join("broker.sock");
        let socket = Socket::at(&path);
        assert!(!is_running(&socket));
        let lock = File::create(directory.path().join("broker.sock.lock")).unwrap();
        assert!(!is_running(&socket));
        flock(&lock, FlockOperation::NonBlockingLockExclusive).unwrap();
        assert!(is_running(&socket));
        std::os::unix::fs::symlink("broker.sock", directory.path().join("link")).unwrap();
        assert!(is_running(&Socket::at(directory.path().join("link"))));
        drop(lock);
        assert!(!is_running(&socket));
    }
}
