//! Whether a socket may be trusted: a stranger's broker could hand out the stranger's credentials.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use crate::safety::shell_word;

pub(crate) const ROOT: u32 = 0;
const WRITABLE_BY_OTHERS: u32 = 0o022;
/// Uid that the kernel shows for every user that a user namespace does not map (`/proc/sys/kernel/overflowuid`).
const OVERFLOW: u32 = 65_534;

/// Why a socket is not trusted: the problem and its remedy.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error(transparent)]
pub struct TrustError(#[from] Distrust);

#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Distrust {
    /// Other users can create sockets in the directory.
    DirectoryWritable {
        /// The directory's permission bits.
        mode: u32,
    },
    /// The process that listens does not run as the expected user.
    OtherServer {
        /// The user that the process runs as.
        uid: u32,
        /// The user that `CREDBROKER_BROKER_UID`, `--broker-uid` or the program names.
        expected: u32,
    },
    /// The socket's directory belongs to another user, and a third one can have made or replaced it.
    Replaceable {
        /// A directory or link on the way to it, which makes that possible.
        directory: PathBuf,
        /// Its owner.
        owner: u32,
        /// Its permission bits.
        mode: u32,
    },
    /// The process that listens runs as a user that is not this user, root, or the directory's owner.
    Server {
        /// The user that the process runs as.
        uid: u32,
    },
    /// The kernel cannot say which user the process that listens runs as.
    UnmappedServer {
        /// The uid that the kernel shows instead.
        uid: u32,
    },
}

impl fmt::Display for Distrust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DirectoryWritable { mode } => write!(
                f,
                "its directory is writable by others (mode {mode:04o}); run chmod go-w on it, or mount it read-only, or set `listen.sharedDirectory` of the broker"
            ),
            Self::OtherServer { uid, expected } => write!(
                f,
                "the process that listens runs as uid {uid}, but CREDBROKER_BROKER_UID or --broker-uid requires uid {expected}; correct that setting, or run the broker as that user"
            ),
            Self::Replaceable { directory, owner, mode } => write!(
                f,
                "other users can make or replace its directory, because {} belongs to uid {owner} and has mode {mode:04o}; set CREDBROKER_BROKER_UID or --broker-uid to the uid of the broker, or mount it read-only",
                directory.display()
            ),
            Self::Server { uid } => write!(
                f,
                "the process that listens runs as uid {uid}, not as this user, root, or the owner of the directory; run the broker as one of these, or set CREDBROKER_BROKER_UID or --broker-uid to its uid"
            ),
            Self::UnmappedServer { uid } => write!(
                f,
                "the process that listens runs as uid {uid}, which the kernel uses for all users that it cannot map; run the broker as another user"
            ),
        }
    }
}

impl std::error::Error for Distrust {}

impl TrustError {
    /// The problem of the socket at `path`, with a command that names its directory.
    pub(crate) fn of(&self, path: &Path) -> String {
        let directory = shell_word(path.parent().unwrap_or(path));
        self.to_string().replacen("chmod go-w on it", &format!("`chmod go-w {directory}`"), 1)
    }
}

/// Whether only this user and root can create sockets in a directory. `own` is called only where it decides.
pub(crate) fn is_private(owner: u32, mode: u32, own: impl FnOnce() -> u32) -> bool {
    !is_writable_by_others(mode) && (owner == ROOT || owner == own())
}

pub(crate) fn is_writable_by_others(mode: u32) -> bool {
    mode & WRITABLE_BY_OTHERS != 0
}

/// A server is trusted if it runs as `expected`, or without that as root, as the owner of the socket's directory, or as
/// this user. A user that the kernel cannot map has no identity.
pub(crate) fn check_server(
    uid: u32,
    expected: Option<u32>,
    owner: u32,
    own: impl FnOnce() -> u32,
    maps_every_user: impl FnOnce() -> bool,
) -> Result<(), Distrust> {
    if uid == u32::MAX || (uid == OVERFLOW && !maps_every_user()) {
        return Err(Distrust::UnmappedServer { uid });
    }
    match expected {
        Some(expected) if expected == uid => Ok(()),
        Some(expected) => Err(Distrust::OtherServer { uid, expected }),
        None if [ROOT, owner].contains(&uid) || uid == own() => Ok(()),
        None => Err(Distrust::Server { uid }),
    }
}

#[cfg(test)]
mod tests;
