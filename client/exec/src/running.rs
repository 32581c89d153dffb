//! Whether a broker runs, as the kernel's list of locks says.

use std::{
    fs::{self, File},
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use credbroker_client::{Socket, paths};
use rustix::fs::{major, minor, stat, statfs};

/// What the kernel returns for one read, in bytes.
const PAGE: u64 = 4096;
/// Room for two lists of 500 locks.
const ROOM: usize = 64 * 1024;
/// Most bytes of a list that are read.
const MOST: u64 = 4 << 20;

/// The process of the broker that holds the lock next to one of the paths of `socket`.
pub fn running(socket: &Socket) -> Option<i32> {
    let [broker, _] = holders(socket);
    broker
}

/// The processes that hold the locks next to one of the paths of `socket`: a broker, from before it listens until it ends, and
/// one that restarts the broker. Takes no lock itself: a broker that starts would find it taken.
pub(crate) fn holders(socket: &Socket) -> [Option<i32>; 2] {
    let mut holders = [None; 2];
    let Ok(lists) = lists() else { return holders };
    for path in socket.candidates().flat_map(names) {
        for (holder, lock) in holders.iter_mut().zip(paths::locks(&path)) {
            let Some((device, inode)) = listed(&lock) else { continue };
            let is_of =
                |(_, on, of): &(i32, &str, u64)| *of == inode && device.as_deref().is_none_or(|of| of == *on);
            let held = || lists.lines().filter_map(locked).find(is_of);
            *holder = holder.or_else(|| held().map(|(process, ..)| process));
        }
    }
    holders
}

/// The kernel's list of locks, twice. A read returns up to a page of one moment, and the next one skips a lock if one before it was
/// released meanwhile. The reads of the two lists end at different places, so a lock that is held is in one of them.
fn lists() -> io::Result<String> {
    // With room, as std reads a few bytes first otherwise.
    let mut lists = String::with_capacity(ROOM);
    for first in [PAGE, PAGE / 2] {
        let mut file = File::open("/proc/locks")?;
        file.by_ref().take(first).read_to_string(&mut lists)?;
        file.take(MOST).read_to_string(&mut lists)?;
    }
    Ok(lists)
}

/// The names of a socket that is published as `path`, which can be a link.
fn names(path: &Path) -> impl Iterator<Item = PathBuf> {
    let target = fs::read_link(path).ok().and_then(|target| Some(path.parent()?.join(target)));
    [Some(path.to_owned()), target].into_iter().flatten()
}

/// The device and the inode of a file in `/proc/locks`. `None` for the device: the kernel lists another device there than `stat` returns.
fn listed(file: &Path) -> Option<(Option<String>, u64)> {
    /// btrfs and overlayfs.
    const OWN_NUMBERS: [u64; 2] = [0x9123_683e, 0x794c_7630];
    let (found, system) = (stat(file).ok()?, statfs(file).ok()?);
    let has_own =
        OWN_NUMBERS.iter().any(|magic| u64::try_from(system.f_type).is_ok_and(|kind| kind == *magic));
    let device = || format!("{:02x}:{:02x}", major(found.st_dev), minor(found.st_dev));
    Some(((!has_own).then(device), found.st_ino))
}

/// The process, the device and the inode of a line of `/proc/locks` about an exclusive `flock` that is held.
fn locked(line: &str) -> Option<(i32, &str, u64)> {
    let mut fields = line.split_ascii_whitespace().skip(1);
    if fields.next()? != "FLOCK" || fields.nth(1)? != "WRITE" {
        return None;
    }
    let process = fields.next()?.parse().ok()?;
    let (device, inode) = fields.next()?.rsplit_once(':')?;
    Some((process, device, inode.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use std::{
        collections::HashSet,
        os::unix::fs::MetadataExt as _,
        sync::atomic::{AtomicBool, Ordering},
        thread,
    };

    use credbroker_test_support::private_directory;
    use rustix::fs::{FlockOperation, flock};

    use super::*;

    #[test]
    fn a_line_of_an_exclusive_lock_names_its_file() {
        let table = [
            ("1: FLOCK  ADVISORY  WRITE 3157 fe:00:1310764 0 EOF", Some((3157, "fe:00", 1_310_764))),
            ("12: FLOCK  ADVISORY  READ 3157 fe:00:7 0 EOF", None),
            ("1: -> FLOCK  ADVISORY  WRITE 3157 fe:00:7 0 EOF", None),
            ("3: POSIX  ADVISORY  WRITE 1 fe:00:7 0 EOF", None),
            ("", None),
        ];
        for (line, found) in table {
            assert_eq!(locked(line), found, "{line}");
        }
    }

    #[test]
    fn a_broker_runs_as_long_as_its_lock_is_held_and_a_restart_has_another() {
        let directory = private_directory();
        let path = directory.path().join("broker.sock");
        let socket = Socket::at(&path);
        let (own, none) = (i32::try_from(std::process::id()).ok(), [None; 2]);
        assert_eq!(holders(&socket), none);
        let taken = |path: &Path, holders_then| {
            let lock = File::create(path).unwrap();
            assert_eq!(holders(&socket), none);
            flock(&lock, FlockOperation::NonBlockingLockExclusive).unwrap();
            assert_eq!(holders(&socket), holders_then);
            lock
        };
        let [lock, restart] = paths::locks(&path);
        let lock = taken(&lock, [own, None]);
        std::os::unix::fs::symlink("broker.sock", directory.path().join("link")).unwrap();
        assert_eq!(running(&Socket::at(directory.path().join("link"))), own);
        drop(lock);
        taken(&restart, [None, own]);
    }

    /// Whether one of `count` locks that are held is ever missing in the list while two others come and go.
    fn is_missed(count: usize) -> bool {
        let directory = private_directory();
        let file = |name: &str| File::create(directory.path().join(name)).unwrap();
        let held: Vec<_> = (0..count).map(|number| file(&number.to_string())).collect();
        for file in &held {
            flock(file, FlockOperation::NonBlockingLockExclusive).unwrap();
        }
        let inodes: HashSet<_> = held.iter().map(|file| file.metadata().unwrap().ino()).collect();
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            for file in ["one", "other"].map(file) {
                let is_over = &is_over;
                scope.spawn(move || {
                    while !is_over.load(Ordering::Relaxed) {
                        flock(&file, FlockOperation::NonBlockingLockExclusive).unwrap();
                        flock(&file, FlockOperation::Unlock).unwrap();
                    }
                });
            }
            let is_missed = (0..500).any(|_| {
                let lists = lists().unwrap();
                let found = lists.lines().filter_map(locked).map(|(.., inode)| inode).collect();
                !inodes.is_subset(&found)
            });
            is_over.store(true, Ordering::Relaxed);
            is_missed
        })
    }

    #[test]
    fn a_lock_is_found_while_others_come_and_go_also_in_a_long_list() {
        assert!(!is_missed(1));
        assert!(!is_missed(200));
    }
}
