//! May this socket be believed? A stranger's broker could hand out the stranger's credentials.

use std::{
    fmt,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use rustix::{
    fs::{Mode, OFlags, StatVfsMountFlags, fstat, fstatvfs, open},
    io::Errno,
    process::geteuid,
};

const ROOT: u32 = 0;
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// Why a socket is not trusted.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Distrust {
    /// Its directory belongs to somebody else.
    DirectoryOwner {
        /// Whom it belongs to.
        owner: u32,
    },
    /// Others may put a socket of theirs into its directory.
    DirectoryWritable {
        /// The directory's permission bits.
        mode: u32,
    },
    /// Whoever listens is neither this user, nor root, nor the directory's owner.
    Server {
        /// Who listens.
        uid: u32,
    },
}

/// The problem and its remedy.
impl fmt::Display for Distrust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DirectoryOwner { owner } => write!(
                f,
                "its directory belongs to uid {owner}, neither root nor this user; mount it read-only, or use a socket in a directory of yours or root's"
            ),
            Self::DirectoryWritable { mode } => write!(
                f,
                "its directory is writable by others (mode {mode:04o}); chmod go-w it, or mount it read-only"
            ),
            Self::Server { uid } => write!(
                f,
                "uid {uid} listens on it, neither this user, nor root, nor the owner of its directory; run the broker as one of these"
            ),
        }
    }
}

/// A directory that only those who are trusted anyway can put a socket into. The descriptor holds on to it, whatever
/// its path leads to later.
#[derive(Debug)]
pub(crate) struct TrustedDirectory {
    pub(crate) descriptor: OwnedFd,
    path: PathBuf,
    owner: u32,
}

/// Why there is no trusted directory.
#[derive(Debug)]
pub(crate) enum DirectoryError {
    Open(Errno),
    Untrusted(Distrust),
}

impl TrustedDirectory {
    pub(crate) fn open(path: &Path) -> Result<Self, DirectoryError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let descriptor = open(path, flags, Mode::empty()).map_err(DirectoryError::Open)?;
        let stat = fstat(&descriptor).map_err(DirectoryError::Open)?;
        if let Err(distrust) = judge_directory(stat.st_uid, stat.st_mode & 0o7777, own_uid) {
            let mount = fstatvfs(&descriptor).map_err(DirectoryError::Open)?;
            if !mount.f_flag.contains(StatVfsMountFlags::RDONLY) {
                return Err(DirectoryError::Untrusted(distrust));
            }
        }
        Ok(Self { descriptor, path: path.to_owned(), owner: stat.st_uid })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether `uid`, who listens on a socket in it, is one whose word counts.
    pub(crate) fn judge_server(&self, uid: u32) -> Result<(), Distrust> {
        let trusted = [ROOT, self.owner].contains(&uid) || uid == own_uid();
        if trusted { Ok(()) } else { Err(Distrust::Server { uid }) }
    }
}

/// A system call, made only where it decides.
fn own_uid() -> u32 {
    geteuid().as_raw()
}

fn judge_directory(owner: u32, mode: u32, own: impl FnOnce() -> u32) -> Result<(), Distrust> {
    if owner != ROOT && owner != own() {
        return Err(Distrust::DirectoryOwner { owner });
    }
    if mode & WRITABLE_BY_OTHERS != 0 {
        return Err(Distrust::DirectoryWritable { mode });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    #[test]
    fn only_the_own_and_roots_directories_that_others_cannot_write_to_are_trusted() {
        let (own, stranger) = (1000, 1001);
        for (owner, mode, expected) in [
            (own, 0o700, Ok(())),
            (ROOT, 0o755, Ok(())),
            (own, 0o750, Ok(())),
            (stranger, 0o700, Err(Distrust::DirectoryOwner { owner: stranger })),
            (own, 0o770, Err(Distrust::DirectoryWritable { mode: 0o770 })),
            (ROOT, 0o1777, Err(Distrust::DirectoryWritable { mode: 0o1777 })),
            (own, 0o702, Err(Distrust::DirectoryWritable { mode: 0o702 })),
        ] {
            assert_eq!(judge_directory(owner, mode, || own), expected, "{owner} {mode:o}");
        }
    }

    #[test]
    fn a_real_directory_is_judged_by_its_mode() {
        let private = fs::Permissions::from_mode(0o700);
        let directory = tempfile::Builder::new().permissions(private).tempdir().unwrap();
        let trusted = TrustedDirectory::open(directory.path()).unwrap();
        assert_eq!(trusted.judge_server(ROOT), Ok(()));
        assert_eq!(trusted.judge_server(own_uid()), Ok(()));
        let stranger = own_uid() + 4242;
        assert_eq!(trusted.judge_server(stranger), Err(Distrust::Server { uid: stranger }));

        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let refused = TrustedDirectory::open(directory.path());
        assert!(
            matches!(refused, Err(DirectoryError::Untrusted(Distrust::DirectoryWritable { mode: 0o777 }))),
            "{refused:?}"
        );
    }

    #[test]
    fn a_read_only_mount_is_trusted_whoever_owns_it() {
        // /sys is mounted read-only in containers; elsewhere it is root's, so both ways lead to trust.
        assert!(TrustedDirectory::open(Path::new("/sys")).is_ok());
    }
}
