//! Where the broker's socket is.

use std::{
    borrow::Cow,
    ffi::OsStr,
    fmt,
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::{Path, PathBuf},
};

use rustix::process::geteuid;

/// One or more paths. The first that exists is the broker's socket.
///
/// The paths are looked up again for every attempt to connect, so a broker that starts later is found.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Socket {
    candidates: Vec<PathBuf>,
    /// The uid of the only broker that is trusted there.
    broker_uid: Option<u32>,
    /// `XDG_RUNTIME_DIR`, where the first candidate is in it.
    runtime_directory: Option<PathBuf>,
    /// Why the candidate in it is no longer among them.
    ignored: Option<IgnoredRuntimeDirectory>,
}

/// `XDG_RUNTIME_DIR` is the directory of another user, so no socket is looked for in it.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct IgnoredRuntimeDirectory {
    /// Its value.
    pub path: PathBuf,
    /// Uid of its owner.
    pub owner: u32,
    /// Uid of this user.
    own: u32,
}

/// The problem and its remedy.
impl fmt::Display for IgnoredRuntimeDirectory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (path, owner, own) = (self.path.display(), self.owner, self.own);
        write!(
            f,
            "XDG_RUNTIME_DIR is ignored, because {path} belongs to uid {owner} and not to uid {own}; run `export XDG_RUNTIME_DIR=/run/user/{own}` or `unset XDG_RUNTIME_DIR`"
        )
    }
}

/// The values that decide where the socket is, for programs that have a flag or read their environment themselves;
/// others use [`Socket::from_env`].
#[derive(Clone, Copy, Debug, Default)]
pub struct SocketSources<'a> {
    flag: Option<&'a OsStr>,
    variable: Option<&'a OsStr>,
    runtime_directory: Option<&'a OsStr>,
    broker_uid_flag: Option<&'a OsStr>,
    broker_uid_variable: Option<&'a OsStr>,
    is_root: bool,
}

/// A value that is not a valid socket address, or not the uid of a server.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{origin} is {value:?}, which is not a valid {expected}")]
#[non_exhaustive]
pub struct SocketError {
    /// The flag or the variable: `--socket`, `CREDBROKER_SOCKET`, `--broker-uid` or `CREDBROKER_BROKER_UID`.
    #[doc(hidden)]
    pub origin: &'static str,
    value: String,
    /// What it must be.
    expected: &'static str,
}

impl<'a> SocketSources<'a> {
    /// Nothing is set, and the user is not root.
    pub fn new() -> Self {
        Self::default()
    }

    /// A command line flag `--socket`. It wins over everything else.
    #[must_use]
    pub fn flag(mut self, value: Option<&'a OsStr>) -> Self {
        self.flag = value;
        self
    }

    /// `CREDBROKER_SOCKET`. An empty value counts as unset.
    #[must_use]
    pub fn variable(mut self, value: Option<&'a OsStr>) -> Self {
        self.variable = value;
        self
    }

    /// `XDG_RUNTIME_DIR`. A relative path counts as unset, as the XDG base directory specification demands.
    #[must_use]
    pub fn runtime_directory(mut self, value: Option<&'a OsStr>) -> Self {
        self.runtime_directory = value;
        self
    }

    /// A command line flag `--broker-uid`. It wins over the variable.
    #[must_use]
    pub fn broker_uid_flag(mut self, value: Option<&'a OsStr>) -> Self {
        self.broker_uid_flag = value;
        self
    }

    /// `CREDBROKER_BROKER_UID`. An empty value counts as unset.
    #[must_use]
    pub fn broker_uid_variable(mut self, value: Option<&'a OsStr>) -> Self {
        self.broker_uid_variable = value;
        self
    }

    /// Whether the user is root, whose broker is the system's: `XDG_RUNTIME_DIR` is then ignored.
    #[must_use]
    pub fn is_root(mut self, is_root: bool) -> Self {
        self.is_root = is_root;
        self
    }
}

impl Socket {
    /// The socket of the system's broker.
    pub const SYSTEM: &str = "/run/credbroker/credbroker.sock";

    /// The socket at `path`.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { candidates: vec![path.into()], broker_uid: None, runtime_directory: None, ignored: None }
    }

    /// Trusts only a server that runs as `uid`. Without this, that is this user, root, or the owner of the socket's
    /// directory. Needed where other users could replace that directory.
    #[must_use]
    pub fn broker_uid(mut self, uid: u32) -> Self {
        self.broker_uid = Some(uid);
        self
    }

    pub(crate) fn expected_server(&self) -> Option<u32> {
        self.broker_uid
    }

    /// The socket of this process's environment: `CREDBROKER_SOCKET` if it is set, else the user's broker at
    /// `$XDG_RUNTIME_DIR/credbroker/credbroker.sock` if that exists, the directory belongs to the user and the user is not
    /// root, else the system's at [`Socket::SYSTEM`]. If `CREDBROKER_BROKER_UID` is set, only a server that runs as that user is trusted.
    ///
    /// # Errors
    ///
    /// `CREDBROKER_SOCKET` is not a path or `unix://` with an absolute path, or `CREDBROKER_BROKER_UID` is not a uid.
    pub fn from_env() -> Result<Self, SocketError> {
        #[expect(clippy::disallowed_methods, reason = "the one place where this crate reads the environment")]
        let variable = |name: &str| std::env::var_os(name);
        let (socket, runtime_directory) = (variable("CREDBROKER_SOCKET"), variable("XDG_RUNTIME_DIR"));
        let broker_uid = variable("CREDBROKER_BROKER_UID");
        let sources = SocketSources::new()
            .variable(socket.as_deref())
            .broker_uid_variable(broker_uid.as_deref())
            .runtime_directory(runtime_directory.as_deref())
            .is_root(geteuid().is_root());
        Self::locate(&sources)
    }

    /// The flag, else the variable, else the user's broker if its socket exists, else the system's.
    ///
    /// # Errors
    ///
    /// The flag or the variable is not a path or `unix://` with an absolute path, or the other one is not a uid.
    #[doc(hidden)]
    pub fn locate(sources: &SocketSources<'_>) -> Result<Self, SocketError> {
        let broker_uid = match (sources.broker_uid_flag, sources.broker_uid_variable) {
            (Some(flag), _) => Some(uid("--broker-uid", flag)?),
            (None, Some(variable)) if !variable.is_empty() => Some(uid("CREDBROKER_BROKER_UID", variable)?),
            _ => None,
        };
        Ok(Self { broker_uid, ..Self::located(sources)? })
    }

    fn located(sources: &SocketSources<'_>) -> Result<Self, SocketError> {
        if let Some(flag) = sources.flag {
            return parse("--socket", flag);
        }
        if let Some(variable) = sources.variable.filter(|value| !value.is_empty()) {
            return parse("CREDBROKER_SOCKET", variable);
        }
        let runtime_directory = sources
            .runtime_directory
            .map(PathBuf::from)
            .filter(|directory| !sources.is_root && directory.is_absolute());
        let user = runtime_directory.as_ref().map(|directory| directory.join("credbroker/credbroker.sock"));
        let candidates = user.into_iter().chain([Self::SYSTEM.into()]).collect();
        Ok(Self { candidates, runtime_directory, broker_uid: None, ignored: None })
    }

    /// The paths in the order in which they are looked up.
    #[doc(hidden)]
    pub fn candidates(&self) -> impl Iterator<Item = &Path> {
        self.candidates.iter().map(PathBuf::as_path)
    }

    /// Set if `XDG_RUNTIME_DIR` is now a directory of another user: the socket in it, which is the first candidate, is then
    /// ignored.
    #[doc(hidden)]
    pub fn ignored_runtime_directory(&self) -> Option<IgnoredRuntimeDirectory> {
        let Some(path) = &self.runtime_directory else { return self.ignored.clone() };
        let (owner, own) = (path.metadata().ok()?.uid(), geteuid().as_raw());
        (owner != own).then(|| IgnoredRuntimeDirectory { path: path.clone(), owner, own })
    }

    /// Without a candidate that is ignored.
    pub(crate) fn in_use(&self) -> Cow<'_, Self> {
        match self.runtime_directory.as_ref().and_then(|_| self.ignored_runtime_directory()) {
            None => Cow::Borrowed(self),
            Some(ignored) => Cow::Owned(Self {
                candidates: self.candidates.iter().skip(1).cloned().collect(),
                broker_uid: self.broker_uid,
                runtime_directory: None,
                ignored: Some(ignored),
            }),
        }
    }
}

/// For messages: `/a` or `/a or /b`, and what is ignored.
impl fmt::Display for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, path) in self.candidates.iter().enumerate() {
            let separator = if index == 0 { "" } else { " or " };
            write!(f, "{separator}{}", path.display())?;
        }
        self.ignored.iter().try_for_each(|ignored| write!(f, " ({ignored})"))
    }
}

fn parse(origin: &'static str, text: &OsStr) -> Result<Socket, SocketError> {
    let bytes = text.as_bytes();
    let path = match bytes.strip_prefix(b"unix:") {
        Some(rest) => rest.strip_prefix(b"//").unwrap_or(rest),
        None => bytes,
    };
    let absolute = path.first() == Some(&b'/');
    let names_a_file = Path::new(OsStr::from_bytes(path)).file_name().is_some();
    // A NUL cannot be in a path, and other schemes are a mistake worth naming.
    let is_url = path.windows(3).any(|window| window == b"://");
    if !names_a_file || path.contains(&0) || (is_url && !absolute) || (path.len() < bytes.len() && !absolute)
    {
        let expected = "socket address; use a path or unix:///absolute/path";
        return Err(SocketError { origin, value: text.to_string_lossy().into_owned(), expected });
    }
    Ok(Socket::at(OsStr::from_bytes(path)))
}

/// The number of a user. The highest one is not a user: system calls take it for none.
fn uid(origin: &'static str, text: &OsStr) -> Result<u32, SocketError> {
    let digits = text.to_str().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    digits.and_then(|digits| digits.parse().ok()).filter(|uid| *uid != u32::MAX).ok_or_else(|| {
        let value = text.to_string_lossy().into_owned();
        SocketError { origin, value, expected: "uid; use a number such as 1000" }
    })
}

#[cfg(test)]
mod tests;
