//! What only Linux has: protection of the process, processes behind sockets, and inotify.
//!
//! A program beside a followed file may write, create and rename others as fast as it can. Directories are watched for names
//! only, few of the events are read at a time, and none are waited for in between: the kernel keeps those that fit its
//! queue, and says when it has dropped some.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    ffi::{OsStr, OsString},
    fs::{self, FileType},
    io,
    mem::{self, MaybeUninit},
    os::{fd::OwnedFd, unix::ffi::OsStrExt as _},
    path::{Component, Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{
        Mode,
        inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags},
        statfs,
    },
    io::Errno,
    process::{
        DumpableBehavior, Pid, PidfdFlags, Resource, Rlimit, Signal, getrlimit, pidfd_open,
        pidfd_send_signal, set_dumpable_behavior, setrlimit, umask,
    },
};
use tokio::{
    io::{Interest, unix::AsyncFd},
    time::sleep,
};
use tracing::warn;

/// The file that this process runs, even if that was replaced or removed.
pub(super) const PROGRAM: &str = "/proc/self/exe";

/// Bytes of events that are read with one system call.
const BUFFER: usize = 4096;
/// The most events that are read at a time.
const EVENTS: usize = 256;
/// How long events are collected before they are read.
const COLLECT: Duration = Duration::from_millis(50);
/// File systems on which other machines can change files, which inotify does not report, as `stat -f -c %t` prints them:
/// NFS, SMB, SMB2, CIFS, FUSE, 9P, AFS, Ceph, Coda, Lustre, GFS2, OCFS2, GPFS, vboxsf.
const REMOTE: &str = "6969 517b fe534d42 ff534d42 65735546 1021997 5346414f c36400 73757245 bd00bd0 1161970 7461636f \
                      47504653 786f4256";

/// Symbolic links that are followed, as many as the kernel follows.
const LINKS: usize = 40;

/// Disables core dumps, ptrace and `/proc/PID/mem`, makes files of plugins private, keeps the descriptors of the parent
/// from plugins, and raises the limit of descriptors.
///
/// A failure is logged and not fatal: then the broker is as protected as the process that started it.
pub fn harden() {
    umask(Mode::RWXG | Mode::RWXO);
    close_fds::set_fds_cloexec(3, &[]);
    if let Err(error) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
        warn!(%error, "cannot disable tracing; processes of the same uid can read the broker's memory");
    }
    if let Err(error) = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) }) {
        warn!(%error, "cannot disable core dumps; one may contain secrets");
    }
    let descriptors = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: descriptors.maximum, ..descriptors };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        warn!(%error, "cannot raise the limit of open files; it bounds the number of connections");
    }
}

/// Asks the process that `find` finds to end, and waits for that. `None`: there is none; false: it did not end in time.
pub fn terminate(find: impl Fn() -> Option<i32>, patience: Duration) -> io::Result<Option<bool>> {
    let Some(pid) = find().and_then(Pid::from_raw) else { return Ok(None) };
    // Held before the second look: its number may be another process's afterwards.
    let held = match pidfd_open(pid, PidfdFlags::empty()) {
        Err(Errno::SRCH) => return Ok(None),
        held => held?,
    };
    if find() != Some(pid.as_raw_nonzero().get()) {
        return Ok(None);
    }
    pidfd_send_signal(&held, Signal::TERM)?;
    let patience = Timespec::try_from(patience).map_err(io::Error::other)?;
    Ok(Some(poll(&mut [PollFd::new(&held, PollFlags::IN)], Some(&patience))? > 0))
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Touch {
    /// It was written, and may be incomplete until it is closed.
    Written,
    /// It was closed, renamed, created or removed, or has other permissions.
    Settled,
}

#[derive(Debug)]
pub(super) struct Watcher {
    /// `None`: the kernel refuses one.
    inotify: Option<Arc<OwnedFd>>,
    watches: ByNumber,
    has_lost_events: bool,
}

#[derive(Debug)]
struct Watched {
    path: PathBuf,
    /// The names in the directory that matter.
    names: Names,
    is_remote: bool,
}

type ByNumber = HashMap<i32, Watched>;

#[derive(Debug, Default)]
pub(super) struct Watches {
    by_number: ByNumber,
    /// Whether every change is reported.
    pub(super) is_complete: bool,
}

impl Watches {
    /// Watches `files`. May block.
    pub(super) fn add(inotify: Option<&OwnedFd>, files: &[PathBuf]) -> Self {
        let Some(inotify) = inotify else { return Self::default() };
        let mut all = Self { by_number: ByNumber::new(), is_complete: true };
        for (path, names) in directories(files) {
            for (name, _) in names.iter().filter(|(_, may_be_file)| **may_be_file) {
                all.note(watch_file(inotify, &path.join(name)), path.join(name), Names::new());
            }
            // What shows that a name means another file, or that a directory has other permissions.
            let changes = WatchFlags::CREATE | WatchFlags::MOVE | WatchFlags::DELETE | WatchFlags::ATTRIB;
            let gone = WatchFlags::DELETE_SELF | WatchFlags::MOVE_SELF | WatchFlags::ONLYDIR;
            all.note(inotify::add_watch(inotify, &path, changes | gone), path, names);
        }
        all
    }

    fn note(&mut self, number: Result<i32, Errno>, path: PathBuf, names: Names) {
        let is_remote = is_remote(&path);
        let is_absent =
            matches!(number, Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::ACCESS | Errno::ISDIR));
        // The directory of a file that is absent is watched.
        self.is_complete &= (number.is_ok() && !is_remote) || (is_absent && names.is_empty());
        if let Ok(number) = number {
            self.by_number.insert(number, Watched { path, names, is_remote });
        }
    }
}

/// Watches the contents of a file, also if they are written by another name. Those of a directory would be all of its files.
fn watch_file(inotify: &OwnedFd, file: &Path) -> Result<i32, Errno> {
    if fs::symlink_metadata(file).is_ok_and(|found| found.is_dir()) {
        return Err(Errno::ISDIR);
    }
    let contents = WatchFlags::MODIFY | WatchFlags::CLOSE_WRITE | WatchFlags::ATTRIB;
    inotify::add_watch(inotify, file, contents | WatchFlags::DELETE_SELF | WatchFlags::DONT_FOLLOW)
}

fn is_remote(path: &Path) -> bool {
    let kind = statfs(path).map(|found| format!("{:x}", found.f_type));
    kind.is_ok_and(|kind| REMOTE.split(' ').any(|remote| remote == kind))
}

impl Watcher {
    pub(super) fn start() -> Self {
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok();
        let inotify = inotify.map(Arc::new).filter(|inotify| registered(inotify).is_some());
        Self { inotify, watches: ByNumber::new(), has_lost_events: false }
    }

    pub(super) fn instance(&self) -> Option<Arc<OwnedFd>> {
        self.inotify.clone()
    }

    pub(super) fn replace(&mut self, newer: Watches) {
        let older = mem::replace(&mut self.watches, newer.by_number);
        let Some(inotify) = &self.inotify else { return };
        for number in older.keys().filter(|number| !self.watches.contains_key(number)) {
            // Fails if its directory is gone.
            let _gone = inotify::remove_watch(inotify, *number);
        }
    }

    /// Waits for touches of followed files, or until the kernel has dropped events. Events are collected for
    /// [`COLLECT`] before they are read. Pending without end if inotify does not work. Cancel safe.
    pub(super) async fn touches(&mut self) -> Vec<(PathBuf, Touch)> {
        loop {
            self.readable().await;
            sleep(COLLECT).await;
            let touches = self.waiting();
            if !touches.is_empty() || self.has_lost_events {
                return touches;
            }
        }
    }

    /// Waits until events wait to be read. Pending without end if inotify does not work. Cancel safe.
    pub(super) async fn readable(&self) {
        // Registered only while it is waited for, because each event would wake the runtime.
        if let Some(events) = self.inotify.as_ref().and_then(registered)
            && events.readable().await.is_ok()
        {
            return;
        }
        std::future::pending::<()>().await;
    }

    /// Touches that were not reported yet: those among a limited number of events. Does not wait.
    pub(super) fn waiting(&mut self) -> Vec<(PathBuf, Touch)> {
        let Some(inotify) = self.inotify.clone() else { return Vec::new() };
        let (mut buffer, mut touches) = ([MaybeUninit::uninit(); BUFFER], Vec::new());
        let mut events = Reader::new(&*inotify, &mut buffer);
        // The kernel hands out what fits the buffer, and that must be read to its end.
        let mut left = EVENTS;
        while left > 0 || !events.is_buffer_empty() {
            left = left.saturating_sub(1);
            match events.next() {
                Ok(event) => {
                    let name = event.file_name().map(|name| OsStr::from_bytes(name.to_bytes()));
                    touches.extend(self.touch(&inotify, event.wd(), event.events(), name));
                }
                Err(Errno::INTR) => {}
                Err(_) => break,
            }
        }
        touches
    }

    /// Whether the kernel has dropped events since the last call: then any file may have changed.
    pub(super) fn has_lost_events(&mut self) -> bool {
        mem::take(&mut self.has_lost_events)
    }

    fn touch(
        &mut self,
        inotify: &OwnedFd,
        number: i32,
        events: ReadFlags,
        name: Option<&OsStr>,
    ) -> Option<(PathBuf, Touch)> {
        if events.contains(ReadFlags::QUEUE_OVERFLOW) {
            self.has_lost_events = true;
            return None;
        }
        if events.contains(ReadFlags::IGNORED) {
            self.watches.remove(&number);
            return None;
        }
        let touch = if events.contains(ReadFlags::MODIFY) { Touch::Written } else { Touch::Settled };
        let Watched { path, names, is_remote } = self.watches.get(&number)?;
        // The directory or the file itself.
        let Some(name) = name else { return Some((path.clone(), touch)) };
        let (path, may_be_file) = (path.join(name), *names.get(name)?);
        let has_appeared =
            events.intersects(ReadFlags::CREATE | ReadFlags::MOVED_TO) && !events.contains(ReadFlags::ISDIR);
        // A file that appears may still be written. On a local file system, the look-up of its name does not block.
        if has_appeared
            && may_be_file
            && !is_remote
            && let Ok(number) = watch_file(inotify, &path)
        {
            let watched = Watched { path: path.clone(), names: Names::new(), is_remote: false };
            self.watches.entry(number).or_insert(watched);
        }
        Some((path, touch))
    }
}

/// Whether events wait to be read. Does not block.
pub(super) fn has_events(inotify: &OwnedFd) -> bool {
    let mut polled = [PollFd::new(inotify, PollFlags::IN)];
    poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|ready| ready > 0)
}

/// `inotify` with the runtime of the caller; `None`: it has no room.
fn registered(inotify: &Arc<OwnedFd>) -> Option<AsyncFd<Arc<OwnedFd>>> {
    #[expect(
        deprecated,
        reason = "its successor is unsafe; the descriptor in an `Arc` is always the same one"
    )]
    AsyncFd::with_interest(Arc::clone(inotify), Interest::READABLE).ok()
}

/// Names in one directory, and whether each may be a file whose contents matter, and not only a link or a directory on the
/// way.
type Names = BTreeMap<OsString, bool>;

/// The directories to watch for `files`, which are absolute. They need not exist: then the place where they would begin to
/// exist is among them. May block.
fn directories(files: &[PathBuf]) -> BTreeMap<PathBuf, Names> {
    let mut directories = BTreeMap::<_, Names>::new();
    for file in files {
        let (mut at, mut links, mut rest) = (PathBuf::from("/"), 0, parts(file));
        while let Some(part) = rest.pop_front() {
            if part == ".." {
                at.pop();
                continue;
            }
            let (path, is_last) = (at.join(&part), rest.is_empty());
            let kind = fs::symlink_metadata(&path).map(|metadata| metadata.file_type());
            if kind.as_ref().is_ok_and(FileType::is_dir) && !is_last {
                at = path;
                continue;
            }
            *directories.entry(at.clone()).or_default().entry(part).or_default() |= is_last;
            let is_link = kind.is_ok_and(|kind| kind.is_symlink()) && links < LINKS;
            // Else the file, or the first part that does not exist.
            let Some(target) = is_link.then(|| fs::read_link(&path).ok()).flatten() else { break };
            links += 1;
            if target.is_absolute() {
                at = PathBuf::from("/");
            }
            let mut parts = parts(&target);
            parts.append(&mut rest);
            rest = parts;
        }
    }
    directories
}

fn parts(path: &Path) -> VecDeque<OsString> {
    let parts = path.components().filter(|part| matches!(part, Component::Normal(_) | Component::ParentDir));
    parts.map(|part| part.as_os_str().to_owned()).collect()
}

#[cfg(test)]
mod tests;
