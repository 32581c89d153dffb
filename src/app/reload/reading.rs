//! When the files are read again, what a reading is, and whether it becomes active. Only the reading itself may block;
//! the decisions are pure, and `now` is the time since boot.

use std::{
    collections::{BTreeMap, HashMap},
    fs::{self, Metadata},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    mem,
    os::{fd::OwnedFd, unix::fs::MetadataExt as _},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use super::super::linux::{Touch, Watches};
use credbroker_config::{self as config, ConfigError, Loaded, Sources};
use credbroker_plugin::{Environment, Providers};

/// A file is read when nothing has happened to it for this time.
pub(super) const QUIET: Duration = Duration::from_millis(250);
/// The files are read this long after the first change, also if they are still being written: a writer may never close its
/// file.
pub(super) const PUT_OFF: Duration = Duration::from_secs(5);

/// What happened since the last reading, or before the one that is due.
#[derive(Debug, Default, Eq, PartialEq)]
pub(super) struct PendingChanges {
    /// From when on each touched file counts as complete.
    files: BTreeMap<PathBuf, Duration>,
    since: Option<Duration>,
    /// When a reading was asked for that no file is the reason of.
    asked: Option<Duration>,
    /// The latest time of a reading that a user or a program waits for.
    requested: Option<Duration>,
}

impl PendingChanges {
    pub(super) fn touch(&mut self, file: PathBuf, touch: Touch, now: Duration) {
        let wait = match touch {
            Touch::Written => PUT_OFF,
            Touch::Settled => QUIET,
        };
        self.since.get_or_insert(now);
        self.files.insert(file, now.saturating_add(wait));
    }

    /// Asks for a reading at `at`, or at an earlier time that was asked for before.
    pub(super) fn ask(&mut self, at: Duration) {
        self.asked = Some(self.asked.map_or(at, |asked| asked.min(at)));
    }

    /// Asks for a reading at `now`, or a moment later if a file was touched just now, but not when it is complete.
    pub(super) fn request(&mut self, now: Duration) {
        self.requested.get_or_insert(now.saturating_add(QUIET));
    }

    /// Asks for another reading at `at`, because files changed at `now` while they were read. It may be put off no longer
    /// than the one `before`.
    pub(super) fn ask_again(&mut self, before: &Self, now: Duration, at: Duration) {
        // A reading that could not wait has read what was pending.
        let since = before.since.filter(|_| before.may_wait(now)).unwrap_or(now);
        self.since = Some(self.since.map_or(since, |known| known.min(since)));
        self.ask(at);
    }

    /// When the files are to be read; `None`: when something happens. All files are read together, so every touched one
    /// must be complete, but they are not waited for without end.
    pub(super) fn due(&self) -> Option<Duration> {
        let complete = self.files.values().max().copied();
        if let Some(latest) = self.requested {
            return Some(complete.unwrap_or_default().min(latest));
        }
        let latest = self.since.map(|since| since.saturating_add(PUT_OFF));
        complete.map(|complete| latest.map_or(complete, |latest| latest.min(complete))).or(self.asked)
    }

    /// What a reading at `now` is due for, if one is. Then everything noted so far is forgotten.
    pub(super) fn take(&mut self, now: Duration) -> Option<Self> {
        self.due().filter(|due| *due <= now).map(|_| mem::take(self))
    }

    /// Whether a reading that is due for this may be put off at `now`, because a file changed while it was read.
    pub(super) fn may_wait(&self, now: Duration) -> bool {
        self.requested.is_none() && self.since.is_none_or(|since| now < since.saturating_add(PUT_OFF))
    }
}

/// The states of some files at one moment, each as a hash of what a change of it changes.
pub(super) type Marks = BTreeMap<PathBuf, u64>;

/// Mode, uid and gid of directories that were looked at; `None`: one cannot be.
type Permissions = HashMap<PathBuf, Option<(u32, u32, u32)>>;

pub(super) fn marks(files: &[PathBuf]) -> Marks {
    let mut known = Permissions::new();
    files.iter().map(|file| (file.clone(), mark(file, &mut known))).collect()
}

/// The files that are not in `newer` as they are in `older`.
pub(super) fn changed(older: &Marks, newer: &Marks) -> Vec<PathBuf> {
    let changed = newer.iter().filter(|(file, mark)| older.get(*file) != Some(mark));
    changed.map(|(file, _)| file.clone()).collect()
}

/// The state of one file; symbolic links are followed. Has the directories above it, by its name and where that leads to: who
/// may write to them decides whether it is used.
fn mark(file: &Path, known: &mut Permissions) -> u64 {
    let mut hasher = DefaultHasher::new();
    let found = fs::metadata(file).map_err(|error| error.kind());
    // The time of the last change of the inode includes changes of its owner and its permissions.
    let times = |found: &Metadata| (found.mtime(), found.mtime_nsec(), found.ctime(), found.ctime_nsec());
    found.as_ref().map(|found| (found.dev(), found.ino(), found.size(), times(found))).hash(&mut hasher);
    let place = fs::canonicalize(file).ok().filter(|place| place != file);
    let paths = [Some(file), place.as_deref()].into_iter().flatten().filter(|_| found.is_ok());
    for directory in paths.flat_map(|path| path.ancestors().skip(1)) {
        let look = || {
            let found = fs::metadata(directory).ok()?;
            Some((found.mode(), found.uid(), found.gid()))
        };
        known.entry(directory.to_owned()).or_insert_with(look).hash(&mut hasher);
    }
    hasher.finish()
}

/// How long such a file counts as a problem. Some tools empty a file before they write it again.
pub(super) const ABSENCE_GRACE: Duration = Duration::from_secs(10);

/// Since when each such file has been so.
pub(super) type Absences = BTreeMap<PathBuf, Duration>;

/// Notes that `absent` are all the files in use that are empty or missing at `now`. Returns those whose absence is a problem,
/// and when it no longer is one.
fn observe(
    absences: &mut Absences,
    absent: impl IntoIterator<Item = PathBuf>,
    now: Duration,
) -> (Vec<PathBuf>, Option<Duration>) {
    let before = mem::take(absences);
    absences.extend(absent.into_iter().map(|file| (file.clone(), before.get(&file).copied().unwrap_or(now))));
    let until = absences.iter().map(|(file, since)| (file.clone(), since.saturating_add(ABSENCE_GRACE)));
    let (awaited, ends): (Vec<_>, Vec<_>) = until.filter(|(_, until)| now < *until).unzip();
    (awaited, ends.into_iter().max())
}

/// The longest problem that is kept, in characters, and the largest number of them: they are made of keys and names of the
/// files.
const LONGEST: usize = 500;
const MOST: usize = 20;

/// Where the configuration is read from.
#[derive(Clone, Debug)]
pub struct ConfigPlace {
    /// `--config`.
    pub flag: Option<PathBuf>,
    /// The environment of the broker.
    pub environment: Arc<Environment>,
}

#[derive(Debug)]
pub(super) struct Reading {
    pub(super) result: Result<Loaded, ConfigError>,
    pub(super) watches: Watches,
    /// The followed files after the reading.
    pub(super) marks: Marks,
    /// Whether a file changed while it was read, or is followed only since then.
    pub(super) is_torn: bool,
}

impl Reading {
    /// Reads the configuration for a broker that runs with `providers`, and watches its files. `followed` are the files
    /// that were followed so far. May block.
    pub(super) fn new(
        place: &ConfigPlace,
        providers: &Providers,
        followed: &[PathBuf],
        inotify: Option<&OwnedFd>,
    ) -> Self {
        // Watched before they are read: a later change is reported.
        let watches = Watches::add(inotify, followed);
        let before = marks(followed);
        let result = config::reload(place.flag.as_deref(), &place.environment, providers);
        let is_new = |file: &PathBuf| !followed.contains(file);
        let is_torn = sources(&result).followed.iter().any(is_new) || before != marks(followed);
        Self { result, watches, marks: before, is_torn }
    }
}

/// Why the active configuration stays at `now`, and when to read again even if nothing happens. Without a problem, the
/// configuration that was read becomes active. `active` are the files of the active configuration.
pub(super) fn judge(
    result: &Result<Loaded, ConfigError>,
    active: &Sources,
    absences: &mut Absences,
    now: Duration,
) -> (Vec<String>, Option<Duration>) {
    let (absent, again) = observe(absences, sources(result).lost_since(active), now);
    let refused = result.as_ref().err().into_iter().flat_map(|error| &error.problems);
    let mut problems: Vec<_> =
        refused.map(|problem| problem.to_string().chars().take(LONGEST).collect()).collect();
    problems.extend(absent.iter().map(|file| {
        let (file, grace) = (file.display(), ABSENCE_GRACE.as_secs());
        format!("{file}: is empty or missing; what it defined stays in use for {grace} seconds")
    }));
    if let Some(more) = problems.len().checked_sub(MOST).filter(|more| *more > 0) {
        problems.truncate(MOST);
        problems.push(format!("and {more} more; `credbroker validate` prints all"));
    }
    (problems, again)
}

/// The files that were read, or that could not be used.
pub(super) fn sources(result: &Result<Loaded, ConfigError>) -> &Sources {
    result.as_ref().map_or_else(|error| &error.sources, |loaded| &loaded.sources)
}

#[cfg(test)]
mod tests;
