//! The file of a plugin, as the last look-up found it.

use std::{
    ffi::{OsStr, OsString},
    fmt, io,
    path::Path,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{sync::Mutex, task::spawn_blocking, time::timeout};

use super::{
    command::{Command, Executable, look},
    pin::FilePin,
    refusal::Refusal,
    sha256::Sha256,
    trust::distrust,
};

/// How long a run waits for the look-up of its file. The file system of a hung mount never answers.
const LOOK_TIMEOUT: Duration = Duration::from_secs(5);

/// A file that the last look-up found.
#[derive(Clone, Debug)]
pub struct FoundFile {
    /// The file.
    pub executable: Arc<Executable>,
    /// Number of this file among the different files found so far; the first is 1.
    pub version: u64,
    /// Why it must not run, as far as its contents, owners and modes say.
    pub refusal: Option<Refusal>,
}

/// Why there is no file to run.
#[derive(Clone, Debug, thiserror::Error)]
pub enum FileError {
    /// The file does not exist.
    #[error("there is no such file")]
    NotFound,
    /// The file system has not answered.
    #[error("its file system has not answered")]
    Unanswered,
    /// The file cannot be looked up.
    #[error("it cannot be looked up")]
    Unreadable(#[source] Arc<io::Error>),
}

/// Looks up a command. The argument is the path where the file was found last.
type Look = dyn Fn(Option<&Path>) -> io::Result<Option<Executable>> + Send + Sync;
/// Checks the owners and modes of a file.
type Check = fn(&Path) -> io::Result<Option<Refusal>>;

/// The file of a plugin: the result of the last look-up, and the number of replacements.
///
/// All other methods read memory only. Look-ups run on the blocking pool, one at a time for each file: a file on a hung
/// mount blocks one thread, and the runs that need it fail.
pub struct PluginFile {
    command: Command,
    look: Box<Look>,
    check: Check,
    pin: Option<FilePin>,
    seen: RwLock<Seen>,
    version: AtomicU64,
    /// Held during a look-up.
    turn: Arc<Mutex<()>>,
}

#[derive(Debug, Default)]
struct Seen {
    /// The file that was found last, even if it no longer exists.
    last: Option<Arc<Executable>>,
    now: Presence,
}

#[derive(Debug, Default)]
enum Presence {
    #[default]
    Unknown,
    There(Option<Refusal>),
    Missing,
    Unreadable(Arc<io::Error>),
}

impl PluginFile {
    /// The file of `command`; `path` is the `PATH` in which a bare name is looked up. Does not look it up yet.
    pub fn new(command: Command, path: Option<&OsStr>) -> Self {
        let (searched, path) = (command.clone(), path.map_or_else(OsString::new, OsStr::to_owned));
        let file = Self::with(command, move |known| look(&searched, &path, known));
        Self { check: distrust, ..file }
    }

    /// The same with a SHA-256 that the file must have.
    #[must_use]
    pub fn pinned(self, wanted: Option<Sha256>) -> Self {
        Self { pin: wanted.map(FilePin::new), ..self }
    }

    pub(super) fn with(
        command: Command,
        look: impl Fn(Option<&Path>) -> io::Result<Option<Executable>> + Send + Sync + 'static,
    ) -> Self {
        let (seen, version, turn) = (RwLock::default(), AtomicU64::new(0), Arc::default());
        Self { command, look: Box::new(look), check: |_| Ok(None), pin: None, seen, version, turn }
    }

    /// The configured command.
    pub fn command(&self) -> &Command {
        &self.command
    }

    /// Number of different files found so far. It grows when a look-up finds a file that differs from the last one in
    /// path, inode or modification time. A file that vanishes does not change it.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Relaxed)
    }

    /// The result of the last look-up.
    ///
    /// # Errors
    ///
    /// The file did not exist, could not be looked up, or was not looked up yet ([`FileError::Unanswered`]).
    pub fn found(&self) -> Result<FoundFile, FileError> {
        let seen = self.seen.read().unwrap_or_else(PoisonError::into_inner);
        match (&seen.now, &seen.last) {
            (Presence::There(refusal), Some(executable)) => {
                let (executable, refusal) = (Arc::clone(executable), refusal.clone());
                Ok(FoundFile { executable, version: self.version(), refusal })
            }
            (Presence::Missing, _) => Err(FileError::NotFound),
            (Presence::Unreadable(error), _) => Err(FileError::Unreadable(Arc::clone(error))),
            (Presence::Unknown | Presence::There(_), _) => Err(FileError::Unanswered),
        }
    }

    /// Looks up the file and returns the result. Waits a bounded time for the file system.
    ///
    /// # Errors
    ///
    /// As [`found`](Self::found); [`FileError::Unanswered`] if this look-up, or one before it, does not end in time.
    pub async fn look(self: &Arc<Self>) -> Result<FoundFile, FileError> {
        let look = async {
            let (turn, file) = (Arc::clone(&self.turn).lock_owned().await, Arc::clone(self));
            // Not on the tracker: on a hung mount it never ends, and a drain must not wait for it. It keeps its turn, so no
            // other look-up starts.
            let look = spawn_blocking(move || {
                let _turn = turn;
                file.look_now();
            });
            look.await
        };
        match timeout(LOOK_TIMEOUT, look).await {
            Ok(Ok(())) => self.found(),
            Ok(Err(_)) | Err(_) => Err(FileError::Unanswered),
        }
    }

    /// Looks up the file on this thread, unless a look-up is in progress.
    pub(super) fn look_unless_looking(&self) {
        if let Ok(_turn) = self.turn.try_lock() {
            self.look_now();
        }
    }

    /// Looks up the file on this thread, without a time limit.
    pub(super) fn look_now(&self) {
        let known = self.last().map(|executable| executable.path.clone());
        let looked = (self.look)(known.as_deref());
        let looked = looked.and_then(|found| match found {
            Some(executable) => self.refusal(&executable.path).map(|refusal| Some((executable, refusal))),
            None => Ok(None),
        });
        let mut seen = self.seen.write().unwrap_or_else(PoisonError::into_inner);
        seen.now = match looked {
            Ok(Some((executable, refusal))) => {
                if let Some(refusal) = &refusal
                    && !matches!(&seen.now, Presence::There(Some(known)) if known == refusal)
                {
                    tracing::warn!(plugin = %executable.path.display(), "the file of a plugin is not safe: {refusal}");
                }
                if seen.last.as_deref() != Some(&executable) {
                    seen.last = Some(Arc::new(executable));
                    self.version.fetch_add(1, Ordering::Relaxed);
                }
                Presence::There(refusal)
            }
            Ok(None) => Presence::Missing,
            Err(error) => Presence::Unreadable(Arc::new(error)),
        };
    }

    /// Another digest is refused in every sandbox, so it is checked first.
    fn refusal(&self, path: &Path) -> io::Result<Option<Refusal>> {
        let digest = self.pin.as_ref().map_or(Ok(None), |pin| pin.refusal(path))?;
        digest.map_or_else(|| (self.check)(path), |refusal| Ok(Some(refusal)))
    }

    /// Acts as if a look-up had found another file.
    #[cfg(any(test, feature = "test-util"))]
    pub fn replace(&self) {
        let mut seen = self.seen.write().unwrap_or_else(PoisonError::into_inner);
        let inode = self.version.fetch_add(1, Ordering::Relaxed) + 1;
        let executable =
            Executable { path: "/fake".into(), inode, modified: std::time::SystemTime::UNIX_EPOCH };
        *seen = Seen { last: Some(Arc::new(executable)), now: Presence::There(None) };
    }

    fn last(&self) -> Option<Arc<Executable>> {
        self.seen.read().unwrap_or_else(PoisonError::into_inner).last.clone()
    }
}

/// The path where the file was found last, else the configured command.
impl fmt::Display for PluginFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.last() {
            Some(executable) => write!(f, "{}", executable.path.display()),
            None => write!(f, "{}", self.command),
        }
    }
}

impl fmt::Debug for PluginFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("PluginFile");
        shown.field("command", &self.command).field("seen", &self.seen);
        shown.field("version", &self.version).finish_non_exhaustive()
    }
}

#[cfg(test)]
pub(super) mod tests;
