//! inotify: which files were touched.

use std::{
    collections::HashMap,
    ffi::OsStr,
    mem::MaybeUninit,
    os::{fd::OwnedFd, unix::ffi::OsStrExt as _},
    path::{Path, PathBuf},
    sync::Arc,
};

use rustix::{
    fs::{
        inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags},
        statfs,
    },
    io::Errno,
};
use tokio::io::unix::AsyncFd;

use super::{
    pending::Touch,
    places::{Names, WatchedPlaces},
};

/// Bytes of events that are read at a time.
const BUFFER: usize = 4096;
/// What shows that a name means another file.
const NAMES: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::MOVE)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF);
/// What shows that the contents of a file change.
const CONTENTS: WatchFlags = WatchFlags::MODIFY
    .union(WatchFlags::CLOSE_WRITE)
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::DELETE_SELF);
/// File systems on which other machines can change files, which inotify does not report: NFS, SMB, CIFS, FUSE, 9P, AFS,
/// Ceph, Coda, Lustre, GFS2, OCFS2, GPFS, vboxsf.
const REMOTE: [u32; 14] = [
    0x6969,
    0x517b,
    0xfe53_4d42,
    0xff53_4d42,
    0x6573_5546,
    0x0102_1997,
    0x5346_414f,
    0x00c3_6400,
    0x7375_7245,
    0x0bd0_0bd0,
    0x0116_1970,
    0x7461_636f,
    0x4750_4653,
    0x786f_4256,
];

/// Reports touches of the followed files.
#[derive(Debug)]
pub(super) struct Watcher {
    /// `None`: the kernel refuses one.
    inotify: Option<AsyncFd<Arc<OwnedFd>>>,
    watches: HashMap<i32, Watched>,
}

/// What one watch is for.
#[derive(Debug)]
enum Watched {
    Directory(PathBuf, Names),
    File(PathBuf),
}

/// The watches of some files.
#[derive(Debug, Default)]
pub(super) struct Watches {
    by_number: HashMap<i32, Watched>,
    /// Whether every change is reported.
    pub(super) is_complete: bool,
}

impl Watches {
    /// Watches `files`. May block.
    pub(super) fn add(inotify: Option<&OwnedFd>, files: &[PathBuf]) -> Self {
        let Some(inotify) = inotify else { return Self::default() };
        let mut all = Self { by_number: HashMap::new(), is_complete: true };
        for (directory, names) in WatchedPlaces::of(files).0 {
            let contents = if names.has_files { CONTENTS } else { WatchFlags::empty() };
            let number = inotify::add_watch(inotify, &directory, NAMES | contents | WatchFlags::ONLYDIR);
            all.is_complete &= number.is_ok() && !is_remote(&directory);
            if let Ok(number) = number {
                all.by_number.insert(number, Watched::Directory(directory, names));
            }
        }
        // A file has more names than the followed one if it is mounted or linked elsewhere.
        for file in files {
            match inotify::add_watch(inotify, file, CONTENTS) {
                Ok(number) => {
                    all.is_complete &= !is_remote(file);
                    all.by_number.entry(number).or_insert_with(|| Watched::File(file.clone()));
                }
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::ACCESS) => {}
                Err(_) => all.is_complete = false,
            }
        }
        all
    }
}

fn is_remote(path: &Path) -> bool {
    statfs(path).is_ok_and(|found| u32::try_from(found.f_type).is_ok_and(|kind| REMOTE.contains(&kind)))
}

impl Watcher {
    /// A watcher of no files. Must be called within a tokio runtime.
    pub(super) fn start() -> Self {
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok();
        #[expect(
            deprecated,
            reason = "its successor is unsafe; the descriptor in an `Arc` is always the same one"
        )]
        let inotify = inotify.and_then(|inotify| AsyncFd::new(Arc::new(inotify)).ok());
        Self { inotify, watches: HashMap::new() }
    }

    /// The inotify instance, for [`Watches::add`].
    pub(super) fn instance(&self) -> Option<Arc<OwnedFd>> {
        self.inotify.as_ref().map(|inotify| Arc::clone(inotify.get_ref()))
    }

    /// Follows the files of `newer` instead of those before.
    pub(super) fn replace(&mut self, newer: Watches) {
        let older = std::mem::replace(&mut self.watches, newer.by_number);
        let Some(inotify) = &self.inotify else { return };
        for number in older.keys().filter(|number| !self.watches.contains_key(number)) {
            // Fails if its directory is gone.
            let _gone = inotify::remove_watch(inotify.get_ref(), *number);
        }
    }

    /// Waits for touches of followed files. Pending without end if inotify does not work.
    pub(super) async fn touches(&self) -> Vec<(PathBuf, Touch)> {
        let Some(inotify) = &self.inotify else { return std::future::pending().await };
        loop {
            let Ok(mut ready) = inotify.readable().await else { return std::future::pending().await };
            let touches = self.read(inotify.get_ref());
            ready.clear_ready();
            if !touches.is_empty() {
                return touches;
            }
        }
    }

    /// The touches that were not reported yet. Does not wait.
    pub(super) fn waiting(&self) -> Vec<(PathBuf, Touch)> {
        self.inotify.as_ref().map(|inotify| self.read(inotify.get_ref())).unwrap_or_default()
    }

    /// All events that wait.
    fn read(&self, inotify: &OwnedFd) -> Vec<(PathBuf, Touch)> {
        let (mut buffer, mut touches) = ([MaybeUninit::uninit(); BUFFER], Vec::new());
        let mut events = Reader::new(inotify, &mut buffer);
        loop {
            match events.next() {
                Ok(event) => {
                    let name = event.file_name().map(|name| OsStr::from_bytes(name.to_bytes()));
                    touches.extend(self.touch(event.wd(), event.events(), name));
                }
                Err(Errno::INTR) => {}
                Err(_) => return touches,
            }
        }
    }

    fn touch(&self, number: i32, events: ReadFlags, name: Option<&OsStr>) -> Option<(PathBuf, Touch)> {
        if events.contains(ReadFlags::QUEUE_OVERFLOW) {
            // Any file may have changed.
            return Some((PathBuf::new(), Touch::Settled));
        }
        let touch = if events.contains(ReadFlags::MODIFY) { Touch::Written } else { Touch::Settled };
        match (self.watches.get(&number)?, name) {
            (Watched::Directory(directory, names), Some(name)) => {
                names.contains(name).then(|| (directory.join(name), touch))
            }
            // The directory itself. A change of its permissions decides nothing.
            (Watched::Directory(directory, _), None) => {
                (!events.contains(ReadFlags::ATTRIB)).then(|| (directory.clone(), Touch::Settled))
            }
            (Watched::File(file), _) => Some((file.clone(), touch)),
        }
    }
}

impl Watcher {
    /// As if the kernel refused an inotify instance.
    #[cfg(test)]
    fn without_inotify() -> Self {
        Self { inotify: None, watches: HashMap::new() }
    }
}

#[cfg(test)]
mod tests;
