//! Whether a socket may be trusted: a stranger's broker could hand out the stranger's credentials.

use std::fmt;

const ROOT: u32 = 0;
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// Why a socket is not trusted.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum TrustError {
    /// The socket's directory belongs to another user.
    DirectoryOwner {
        /// The directory's owner.
        owner: u32,
    },
    /// Other users can create sockets in the directory.
    DirectoryWritable {
        /// The directory's permission bits.
        mode: u32,
    },
    /// The process that listens runs as a user that is not this user, root, or the directory's owner.
    Server {
        /// The user that the process runs as.
        uid: u32,
    },
}

/// The problem and its remedy.
impl fmt::Display for TrustError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DirectoryOwner { owner } => write!(
                f,
                "its directory belongs to uid {owner}, not to root or this user; mount it read-only, or use a socket in a directory that belongs to this user or root"
            ),
            Self::DirectoryWritable { mode } => write!(
                f,
                "its directory is writable by others (mode {mode:04o}); run chmod go-w on it, or mount it read-only"
            ),
            Self::Server { uid } => write!(
                f,
                "the process that listens runs as uid {uid}, not as this user, root, or the owner of the directory; run the broker as one of these"
            ),
        }
    }
}

impl std::error::Error for TrustError {}

/// A directory is trusted if only this user and root can create sockets in it. `own` is called only where it decides.
pub(crate) fn check_directory(owner: u32, mode: u32, own: impl FnOnce() -> u32) -> Result<(), TrustError> {
    if owner != ROOT && owner != own() {
        return Err(TrustError::DirectoryOwner { owner });
    }
    if mode & WRITABLE_BY_OTHERS != 0 {
        return Err(TrustError::DirectoryWritable { mode });
    }
    Ok(())
}

/// A server is trusted if it runs as root, as the owner of the socket's directory, or as this user.
pub(crate) fn check_server(uid: u32, owner: u32, own: impl FnOnce() -> u32) -> Result<(), TrustError> {
    let trusted = [ROOT, owner].contains(&uid) || uid == own();
    if trusted { Ok(()) } else { Err(TrustError::Server { uid }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_must_belong_to_this_user_or_root_and_not_be_writable_by_others() {
        let (own, stranger) = (1000, 1001);
        for (owner, mode, expected) in [
            (own, 0o700, Ok(())),
            (ROOT, 0o755, Ok(())),
            (own, 0o750, Ok(())),
            (stranger, 0o700, Err(TrustError::DirectoryOwner { owner: stranger })),
            (own, 0o770, Err(TrustError::DirectoryWritable { mode: 0o770 })),
            (ROOT, 0o1777, Err(TrustError::DirectoryWritable { mode: 0o1777 })),
            (own, 0o702, Err(TrustError::DirectoryWritable { mode: 0o702 })),
        ] {
            assert_eq!(check_directory(owner, mode, || own), expected, "{owner} {mode:o}");
        }
    }

    #[test]
    fn a_server_must_run_as_this_user_root_or_the_owner_of_the_directory() {
        let (own, owner, stranger) = (1000, 1001, 1002);
        for uid in [ROOT, own, owner] {
            assert_eq!(check_server(uid, owner, || own), Ok(()));
        }
        assert_eq!(check_server(stranger, owner, || own), Err(TrustError::Server { uid: stranger }));
    }
}
