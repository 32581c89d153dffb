//! Looks at the files of plugins: which file a command means, and why it must not run.

use std::{
    ffi::OsStr,
    fs::{self, File, Metadata},
    io,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    sync::{Arc, LazyLock},
    time::Duration,
};

use rustix::process::geteuid;
use tokio::{task::spawn_blocking, time::timeout};
use tracing::warn;

use credbroker_client::paths::{Exposed, first_on_the_way};
use credbroker_plugin::{
    Command, Executable, FileError, FileIdentity, FoundFile, PluginFile, Providers, Refusal, Sha256,
};

/// How long a run waits for the look-up of its file. The file system of a hung mount never answers.
const LOOK_TIMEOUT: Duration = Duration::from_secs(5);
const STICKY: u32 = 0o1000;

type LastDigest = Option<(FileIdentity, Sha256)>;

/// Looks up each of the plugins' files once, on this thread, except those whose last look-up has not ended. A file on a
/// hung mount holds this thread; the next call leaves it out.
pub fn look_up_files(providers: &Providers) {
    look_up(&providers.files, look);
}

/// Looks up the file and returns the result. Waits a bounded time for the file system.
///
/// Each file has one look-up at a time, on the blocking pool: a hung mount blocks one thread, and fails only its runs.
///
/// # Errors
///
/// As [`PluginFile::found`]; [`FileError::Unanswered`] if this look-up, or one before it, does not end in time.
pub(crate) async fn find(file: &Arc<PluginFile>) -> Result<FoundFile, FileError> {
    find_with(file, look).await
}

/// The first executable file of that name in a `PATH`. If none is executable, the first file of that name: its start
/// fails with the reason. Relative entries are skipped, because they depend on the working directory.
pub fn find_in_path(name: &str, path: &OsStr) -> Option<PathBuf> {
    let candidates = std::env::split_paths(path).filter(|dir| dir.is_absolute()).map(|dir| dir.join(name));
    let mut forbidden = None;
    for candidate in candidates {
        let Some(file) = fs::metadata(&candidate).ok().filter(Metadata::is_file) else { continue };
        if file.permissions().mode() & 0o111 != 0 {
            return Some(candidate);
        }
        forbidden.get_or_insert(candidate);
    }
    forbidden
}

fn look_up(
    files: &[Arc<PluginFile>],
    look: impl Fn(&PluginFile, &mut LastDigest) -> io::Result<Option<FoundFile>>,
) {
    for file in files {
        if let Ok(mut turn) = file.turn.try_lock() {
            note(file, look(file, &mut turn));
        }
    }
}

async fn find_with(
    file: &Arc<PluginFile>,
    look: impl FnOnce(&PluginFile, &mut LastDigest) -> io::Result<Option<FoundFile>> + Send + 'static,
) -> Result<FoundFile, FileError> {
    let looking = async {
        let (mut turn, file) = (Arc::clone(&file.turn).lock_owned().await, Arc::clone(file));
        // Not on the tracker: a drain must not wait for a hung mount. It keeps its turn, so no other look-up starts.
        spawn_blocking(move || note(&file, look(&file, &mut turn))).await
    };
    match timeout(LOOK_TIMEOUT, looking).await {
        Ok(Ok(())) => file.found(),
        Ok(Err(_)) | Err(_) => Err(FileError::Unanswered),
    }
}

fn note(file: &PluginFile, looked: io::Result<Option<FoundFile>>) {
    if let Some(FoundFile { executable, refusal: Some(refusal), .. }) = file.note(looked) {
        warn!(plugin = %executable.path.display(), "the file of a plugin is not safe: {refusal}");
    }
}

fn look(file: &PluginFile, last: &mut LastDigest) -> io::Result<Option<FoundFile>> {
    let query = &file.query;
    let known = file.last().map(|executable| executable.path.clone());
    let Some(executable) = current(&query.command, &query.path, known.as_deref())? else { return Ok(None) };
    // Another digest is refused in every sandbox, so it is checked first.
    let digest = query.sha256.map_or(Ok(None), |wanted| other_digest(&executable.path, wanted, last))?;
    let refusal = digest.map_or_else(|| distrust(&executable.path), |refusal| Ok(Some(refusal)))?;
    let name = executable.path.file_name().and_then(OsStr::to_str).filter(|_| query.is_listed);
    let first = name.and_then(|name| find_in_path(name, &query.path));
    let is_first_in_path = first.is_some_and(|first| first == executable.path);
    Ok(Some(FoundFile { executable: executable.into(), version: 0, refusal, is_first_in_path }))
}

/// The file that `command` currently means; `None` if there is none. A bare name is looked up in `path`, a `PATH`. The
/// file where it was found last (`known`) is kept while it exists.
fn current(command: &Command, path: &OsStr, known: Option<&Path>) -> io::Result<Option<Executable>> {
    let name = match command {
        Command::Path(path) => return executable(path),
        Command::Name(name) => name,
    };
    match known.map_or(Ok(None), executable)? {
        Some(executable) => Ok(Some(executable)),
        None => find_in_path(name, path).map_or(Ok(None), |found| executable(&found)),
    }
}

/// The file at `path`, if there is one. Follows symbolic links: a package manager upgrades a plugin by changing one.
fn executable(path: &Path) -> io::Result<Option<Executable>> {
    use io::ErrorKind::{NotADirectory, NotFound};
    let metadata = match fs::metadata(path) {
        Err(error) if matches!(error.kind(), NotFound | NotADirectory) => return Ok(None),
        metadata => metadata?,
    };
    Ok(Some(Executable { path: path.to_owned(), inode: metadata.ino(), modified: metadata.modified()? }))
}

/// Refuses a file with another digest than `wanted`. It is read again only when it has changed since the `last` time.
/// An error: it cannot be read, or changes while it is read.
fn other_digest(path: &Path, wanted: Sha256, last: &mut LastDigest) -> io::Result<Option<Refusal>> {
    let mut file = File::open(path)?;
    let identity = identity(&file.metadata()?);
    let actual = match *last {
        Some((same, digest)) if same == identity => digest,
        _ => Sha256::of_contents(&mut file)?,
    };
    if self::identity(&file.metadata()?) != identity {
        return Err(io::Error::other("it changed while it was read"));
    }
    *last = Some((identity, actual));
    Ok((actual != wanted).then(|| Refusal::Digest(actual.to_string())))
}

fn identity(metadata: &Metadata) -> FileIdentity {
    let (modified, changed) =
        ((metadata.mtime(), metadata.mtime_nsec()), (metadata.ctime(), metadata.ctime_nsec()));
    (metadata.dev(), metadata.ino(), metadata.size(), modified, changed)
}

/// Why a file at this absolute path is not trusted: another user can write it, or a directory or link on the way to it.
/// Nothing on a mount that is read-only for the broker can be changed through this path.
fn distrust(path: &Path) -> io::Result<Option<Refusal>> {
    static OWNERS: LazyLock<Owners> =
        LazyLock::new(|| Owners { own: geteuid().as_raw(), unmapped_root: unmapped_root() });
    let is_shared =
        |directory: &Path| directory.symlink_metadata().is_ok_and(|found| is_writable(found.mode()));
    let found = first_on_the_way(path, |at, found| {
        OWNERS.trust(&Found {
            owner: found.uid(),
            mode: found.mode(),
            is_link: found.is_symlink(),
            is_directory: found.is_dir(),
            is_in_shared: found.is_symlink() && at.parent().is_some_and(is_shared),
        })
    })?;
    Ok(found.map(|Exposed { path, owner, mode }| {
        if OWNERS.include(owner) { Refusal::Writable(path, mode) } else { Refusal::Owner(path, owner) }
    }))
}

fn is_writable(mode: u32) -> bool {
    mode & 0o022 != 0
}

/// A directory, link or file on the way to a plugin.
#[derive(Clone, Copy, Debug)]
struct Found {
    owner: u32,
    mode: u32,
    is_link: bool,
    is_directory: bool,
    /// For a link, whether all users can make files beside it.
    is_in_shared: bool,
}

/// Users who may replace plugins.
#[derive(Debug)]
struct Owners {
    own: u32,
    unmapped_root: Option<u32>,
}

impl Owners {
    fn are_root(&self, owner: u32) -> bool {
        owner == 0 || self.unmapped_root == Some(owner)
    }

    fn include(&self, owner: u32) -> bool {
        owner == self.own || self.are_root(owner)
    }

    fn trust(&self, found: &Found) -> bool {
        let &Found { owner, mode, is_link, is_directory, is_in_shared } = found;
        if is_link {
            // A link cannot be written, but its owner can replace it where all users can make files.
            return !is_in_shared || self.include(owner);
        }
        let is_protected = is_directory && mode & STICKY != 0 && self.are_root(owner);
        self.include(owner) && (!is_writable(mode) || is_protected)
    }
}

/// What root's files seem to belong to in a user namespace without root; `None`: root is here.
fn unmapped_root() -> Option<u32> {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let overflow = read("/proc/sys/kernel/overflowuid").trim().parse().unwrap_or(65_534);
    (!maps_root(&read("/proc/self/uid_map"))).then_some(overflow)
}

/// Whether a `/proc/PID/uid_map` has root. Without the file there are no user namespaces.
fn maps_root(map: &str) -> bool {
    map.lines().any(|line| line.split_whitespace().next() == Some("0")) || map.trim().is_empty()
}

#[cfg(test)]
mod tests;
