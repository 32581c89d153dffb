//! A plugin's file, as the last look found it.

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

use tokio::{
    sync::{Mutex, OwnedMutexGuard},
    task::{JoinHandle, spawn_blocking},
    time::timeout,
};

use super::command::{Command, Executable, look};

/// How long a run waits for a look at its file. The file system of a hung mount never answers.
const PATIENCE: Duration = Duration::from_secs(5);

/// A file that was there at the last look.
#[derive(Clone, Debug)]
pub struct FoundFile {
    /// The file.
    pub executable: Arc<Executable>,
    /// Which of the files that were found so far it is; the first is 1.
    pub version: u64,
}

/// Why there is no file to run.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// No such file.
    #[error("there is no such file")]
    NotFound,
    /// The file system has not answered.
    #[error("its file system has not answered")]
    Unanswered,
    /// It cannot be looked at.
    #[error("it cannot be looked up")]
    Unreadable(#[source] Arc<io::Error>),
}

/// Looks a command up. It gets the path where the file was found last.
type Look = dyn Fn(Option<&Path>) -> io::Result<Option<Executable>> + Send + Sync;

/// The file of a plugin: what the last look found, and how often it was replaced.
///
/// Everything but a look only reads memory. Looks happen on the blocking pool, one at a time: a file on a hung mount
/// costs one thread, and those who need that file an error.
pub struct PluginFile {
    command: Command,
    look: Box<Look>,
    seen: RwLock<Seen>,
    version: AtomicU64,
    /// Held during a look.
    turn: Arc<Mutex<()>>,
}

#[derive(Debug, Default)]
struct Seen {
    /// What was found last, whether it is still there or not.
    last: Option<Arc<Executable>>,
    now: Presence,
}

#[derive(Debug, Default)]
enum Presence {
    #[default]
    Unknown,
    There,
    Missing,
    Unreadable(Arc<io::Error>),
}

impl PluginFile {
    /// The file of `command`; `path` is the `PATH` that a bare name is looked up in. Nothing is looked at yet.
    pub fn new(command: Command, path: Option<&OsStr>) -> Self {
        let (searched, path) = (command.clone(), path.map_or_else(OsString::new, OsStr::to_owned));
        Self::with(command, move |known| look(&searched, &path, known))
    }

    pub(super) fn with(
        command: Command,
        look: impl Fn(Option<&Path>) -> io::Result<Option<Executable>> + Send + Sync + 'static,
    ) -> Self {
        let (seen, version, turn) = (RwLock::default(), AtomicU64::new(0), Arc::default());
        Self { command, look: Box::new(look), seen, version, turn }
    }

    /// As configured.
    pub fn command(&self) -> &Command {
        &self.command
    }

    /// How many different files were found so far: 0 before the first, and one more whenever a file is found that is
    /// not the last one (another path, inode or modification time). A file that vanishes changes nothing.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Relaxed)
    }

    /// What the last look found.
    ///
    /// # Errors
    ///
    /// There was no file, it could not be looked at, or nothing has looked yet ([`FileError::Unanswered`]).
    pub fn found(&self) -> Result<FoundFile, FileError> {
        let seen = self.seen.read().unwrap_or_else(PoisonError::into_inner);
        match (&seen.now, &seen.last) {
            (Presence::There, Some(executable)) => {
                Ok(FoundFile { executable: Arc::clone(executable), version: self.version() })
            }
            (Presence::Missing, _) => Err(FileError::NotFound),
            (Presence::Unreadable(error), _) => Err(FileError::Unreadable(Arc::clone(error))),
            (Presence::Unknown | Presence::There, _) => Err(FileError::Unanswered),
        }
    }

    /// Looks, and returns what is there now. Waits a bounded time for the file system.
    ///
    /// # Errors
    ///
    /// As [`found`](Self::found); [`FileError::Unanswered`] when this look, or one before it, does not end.
    pub async fn look(self: &Arc<Self>) -> Result<FoundFile, FileError> {
        let look = async {
            let turn = Arc::clone(&self.turn).lock_owned().await;
            self.start(turn).await
        };
        match timeout(PATIENCE, look).await {
            Ok(Ok(())) => self.found(),
            Ok(Err(_)) | Err(_) => Err(FileError::Unanswered),
        }
    }

    /// Looks, unless a look is in flight, and waits up to `patience` for the end.
    pub(super) async fn look_unless_looking(self: &Arc<Self>, patience: Duration) {
        if let Ok(turn) = Arc::clone(&self.turn).try_lock_owned() {
            // A look that does not end keeps its turn, and none follows it.
            drop(timeout(patience, self.start(turn)).await);
        }
    }

    /// The task is on no tracker: on a hung mount it never ends, and a drain must not wait for it.
    fn start(self: &Arc<Self>, turn: OwnedMutexGuard<()>) -> JoinHandle<()> {
        let file = Arc::clone(self);
        spawn_blocking(move || {
            let _turn = turn;
            file.look_now();
        })
    }

    /// Looks on this thread, for as long as that takes.
    pub(super) fn look_now(&self) {
        let known = self.last().map(|executable| executable.path.clone());
        let looked = (self.look)(known.as_deref());
        let mut seen = self.seen.write().unwrap_or_else(PoisonError::into_inner);
        seen.now = match looked {
            Ok(Some(executable)) => {
                if seen.last.as_deref() != Some(&executable) {
                    seen.last = Some(Arc::new(executable));
                    self.version.fetch_add(1, Ordering::Relaxed);
                }
                Presence::There
            }
            Ok(None) => Presence::Missing,
            Err(error) => Presence::Unreadable(Arc::new(error)),
        };
    }

    /// As if a look had found another file.
    #[cfg(test)]
    pub(crate) fn replace(&self) {
        let mut seen = self.seen.write().unwrap();
        let inode = self.version.fetch_add(1, Ordering::Relaxed) + 1;
        let executable =
            Executable { path: "/fake".into(), inode, modified: std::time::SystemTime::UNIX_EPOCH };
        *seen = Seen { last: Some(Arc::new(executable)), now: Presence::There };
    }

    fn last(&self) -> Option<Arc<Executable>> {
        self.seen.read().unwrap_or_else(PoisonError::into_inner).last.clone()
    }
}

/// Where it was found last, else as configured.
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
