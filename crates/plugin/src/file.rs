//! The file of a plugin: the command that names it, what the runner's last look-up found, and why it must not run.

use std::{
    ffi::{OsStr, OsString},
    fmt, io,
    path::{Component, Path, PathBuf},
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
    time::SystemTime,
};

use tokio::sync::Mutex;

use credbroker_credential::{Sha256, text::shown_path};

/// How a plugin's executable is named.
#[derive(Clone, Debug, derive_more::Display, Eq, Hash, PartialEq)]
pub enum Command {
    /// A bare name, looked up in the `PATH` that the plugin inherits. As with client-go, a `PATH` in the stanza's own
    /// `env` reaches the plugin but does not change the look-up.
    Name(String),
    /// An absolute path.
    #[display("{}", _0.display())]
    Path(PathBuf),
}

/// A file to run, and the values that change when it is replaced.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Executable {
    /// Absolute path.
    pub path: PathBuf,
    /// Inode number.
    pub inode: u64,
    /// Time of the last change to its contents.
    pub modified: SystemTime,
}

impl Command {
    /// The name of its file.
    pub fn program(&self) -> Option<&str> {
        match self {
            Self::Name(name) => Some(name),
            Self::Path(path) => path.file_name().and_then(OsStr::to_str),
        }
    }
}

/// Which plugins may run.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum PluginPolicy {
    /// All.
    #[default]
    AllowAll,
    /// None.
    DenyAll,
    /// Those in the list: names and absolute paths, cleaned.
    Allowlist(Vec<String>),
}

impl PluginPolicy {
    /// Why `command`, for which `file` was found (`None`: nothing), may not run.
    ///
    /// As in client-go, an entry permits the plugin if it equals the command or the path, or if it is a bare name that leads to
    /// the same path through `PATH`. Symbolic links are not followed. A plugin may be refused that does not exist.
    pub(super) fn refusal(&self, command: &Command, file: Option<&FoundFile>) -> Option<Refusal> {
        let entries = match self {
            Self::AllowAll => return None,
            Self::DenyAll => return Some(Refusal::DenyAll),
            Self::Allowlist(entries) => entries,
        };
        let (written, path) = (command.to_string(), file.map(|file| &*file.executable.path));
        let its_name =
            file.filter(|file| file.is_first_in_path).and_then(|file| file.executable.path.file_name());
        let permits = |entry: &String| {
            *entry == written || path == Some(Path::new(entry)) || its_name == Some(OsStr::new(entry))
        };
        let refused = || path.map_or_else(|| written.clone().into(), Path::to_owned);
        (!entries.iter().any(permits)).then(|| Refusal::NotListed(refused()))
    }
}

/// `path` without `.`, `..` and double separators, as Go's `filepath.Clean` writes it. client-go runs the cleaned path, so
/// that `..` after a symbolic link leads to the same file as in its allowlist.
pub fn cleaned(path: &Path) -> PathBuf {
    let mut clean = PathBuf::new();
    for part in path.components() {
        match (part, clean.components().next_back()) {
            (Component::CurDir, _) | (Component::ParentDir, Some(Component::RootDir)) => {}
            (Component::ParentDir, Some(Component::Normal(_))) => {
                clean.pop();
            }
            _ => clean.push(part),
        }
    }
    if clean.as_os_str().is_empty() { ".".into() } else { clean }
}

/// Why a plugin that exists is not started.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Refusal {
    /// `credentialPluginPolicy` is `DenyAll`.
    #[error("`credentialPluginPolicy` is `DenyAll`")]
    DenyAll,
    /// The file has this SHA-256, in hexadecimal, and not the provider's `sha256`.
    #[error(
        "its SHA-256 is {0}, but the provider has another `sha256`; if you upgraded the plugin, change `sha256`"
    )]
    Digest(String),
    /// The allowlist does not have this file, or this command if there is no file.
    #[error("`credentialPluginAllowlist` does not permit it; add `- command: {}` to it", shown_path(.0))]
    NotListed(PathBuf),
    /// Another user owns the file, or a directory or link on the way to it.
    #[error(
        "{path} belongs to uid {owner}, who can replace it; run `chown root {path}`, or set `sandbox: Compatible` for the provider",
        path = shown_path(.0), owner = .1
    )]
    Owner(PathBuf, u32),
    /// Users other than the owner can write the file, or a directory on the way to it, which has these permission bits.
    #[error(
        "users other than its owner can write to {path} (mode {mode:04o}); run `chmod go-w {path}`, or set `sandbox: Compatible` for the provider",
        path = shown_path(.0), mode = .1
    )]
    Writable(PathBuf, u32),
}

impl Refusal {
    /// Whether the plugin policy refuses it, which client-go has too.
    pub fn is_of_policy(&self) -> bool {
        matches!(self, Self::DenyAll | Self::NotListed(_))
    }
}

/// A file that the last look-up found.
#[derive(Clone, Debug)]
pub struct FoundFile {
    /// The file.
    pub executable: Arc<Executable>,
    /// Number of this file among the different files found so far; the first is 1. The [`PluginFile`] counts them.
    pub version: u64,
    /// Why it must not run, as far as its contents, owners and modes say.
    pub refusal: Option<Refusal>,
    /// Whether the name of the file alone leads to it through `PATH`; false if the [`FileQuery`] does not ask for it.
    pub is_first_in_path: bool,
}

/// Why there is no file to run.
#[derive(Clone, Debug)]
pub enum FileError {
    /// The file does not exist.
    NotFound,
    /// The file system has not answered.
    Unanswered,
    /// The file cannot be looked up.
    Unreadable(Arc<io::Error>),
}

/// What a look-up is to find out.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct FileQuery {
    /// The command.
    pub command: Command,
    /// The `PATH` in which a bare name is looked up.
    pub path: OsString,
    /// The SHA-256 that the file must have.
    pub sha256: Option<Sha256>,
    /// Whether an allowlist may name the file without its directory.
    pub is_listed: bool,
}

/// Changes with each write to a file, even if its times are set back: the kernel alone sets the time of the last status
/// change. Device, inode, size, and the times of the last modification and status change.
pub type FileIdentity = (u64, u64, u64, (i64, i64), (i64, i64));

/// The file of a plugin: the result of the last look-up, and the number of replacements. Reads memory only.
#[derive(derive_more::Debug)]
#[debug("PluginFile({self})")]
pub struct PluginFile {
    /// What a look-up is to find out.
    pub query: FileQuery,
    /// Held during a look-up, because there is one at a time for each file. Has the digest of the contents that were read
    /// last: they are read again only when they have changed.
    pub turn: Arc<Mutex<Option<(FileIdentity, Sha256)>>>,
    seen: RwLock<Seen>,
    version: AtomicU64,
}

#[derive(Debug)]
struct Seen {
    /// The file that was found last, even if it no longer exists.
    last: Option<Arc<Executable>>,
    /// What the last look-up found; [`FileError::Unanswered`]: there was none yet.
    now: Result<FoundFile, FileError>,
}

impl PluginFile {
    /// The file that `query` asks for. It was not looked up yet.
    pub fn of(query: FileQuery) -> Self {
        let seen = RwLock::new(Seen { last: None, now: Err(FileError::Unanswered) });
        Self { query, seen, version: AtomicU64::new(0), turn: Arc::default() }
    }

    /// Number of different files found so far. It grows when a look-up finds a file that differs from the last one in
    /// path, inode or modification time. A file that vanishes does not change it.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Relaxed)
    }

    /// The file that was found last, even if it is no longer there.
    pub fn last(&self) -> Option<Arc<Executable>> {
        self.seen.read().unwrap_or_else(PoisonError::into_inner).last.clone()
    }

    /// The result of the last look-up; [`FileError::Unanswered`]: there was none yet.
    pub fn found(&self) -> Result<FoundFile, FileError> {
        self.seen.read().unwrap_or_else(PoisonError::into_inner).now.clone()
    }

    /// Notes what a look-up found; `None`: no file. Returns the file if it must not run, and the reason is new.
    pub fn note(&self, looked: io::Result<Option<FoundFile>>) -> Option<FoundFile> {
        let mut seen = self.seen.write().unwrap_or_else(PoisonError::into_inner);
        let before = seen.now.as_ref().ok().and_then(|known| known.refusal.clone());
        seen.now = match looked {
            Ok(Some(mut found)) => {
                match seen.last.take().filter(|last| *last == found.executable) {
                    Some(same) => found.executable = same,
                    None => _ = self.version.fetch_add(1, Ordering::Relaxed),
                }
                found.version = self.version();
                seen.last = Some(Arc::clone(&found.executable));
                Ok(found)
            }
            Ok(None) => Err(FileError::NotFound),
            Err(error) => Err(FileError::Unreadable(Arc::new(error))),
        };
        let found = seen.now.as_ref().ok().filter(|found| found.refusal.is_some() && found.refusal != before);
        found.cloned()
    }
}

/// The path where the file was found last, else the configured command.
impl fmt::Display for PluginFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.last() {
            Some(executable) => write!(f, "{}", executable.path.display()),
            None => write!(f, "{}", self.query.command),
        }
    }
}

#[cfg(test)]
mod tests;
