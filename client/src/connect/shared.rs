//! The directory of a socket, where it is not one that only this user and root can change.

use std::{
    io,
    path::{Path, PathBuf},
};

use super::platform::{Directory, own_uid};
use crate::{
    paths::{OWN_SOCKET, own_folder, shared},
    trust::{Distrust, ROOT, is_private, is_writable_by_others},
};

/// Why a directory is not used.
pub(super) enum Refusal {
    Untrusted(Distrust),
    Io(io::Error),
}

impl From<Distrust> for Refusal {
    fn from(error: Distrust) -> Self {
        Self::Untrusted(error)
    }
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// The directory to connect in, and the name of the socket there. Who listens must be checked too: the owner of the
/// directory, this user or root, or `expected` if it is set.
///
/// In a directory that others can write to, that is the broker's own directory. A directory of another user is trusted if
/// the mount is read-only, if a server is expected, or if only that user, this one and root can have made what its path
/// leads to.
pub(super) fn choose(
    directory: Directory,
    name: &Path,
    expected: Option<u32>,
) -> Result<(Directory, PathBuf), Refusal> {
    let own = if is_writable_by_others(directory.mode) { directory.below(&own_folder(name))? } else { None };
    let (directory, name) = match own {
        Some(folder) => (folder, PathBuf::from(OWN_SOCKET)),
        None => (directory, name.to_owned()),
    };
    let is_ours = is_private(directory.owner, directory.mode, own_uid);
    if is_ours || directory.is_read_only()? {
        return Ok((directory, name));
    }
    if is_writable_by_others(directory.mode) {
        return Err(Distrust::DirectoryWritable { mode: directory.mode }.into());
    }
    // Its process proves to be the expected one when the connection is made.
    if expected.is_some() {
        return Ok((directory, name));
    }
    let trusted = [ROOT, own_uid(), directory.owner];
    if let Some(found) = shared(directory.path(), &trusted)? {
        return Err(
            Distrust::Replaceable { directory: found.path, owner: found.owner, mode: found.mode }.into()
        );
    }
    if !directory.is_still_there()? {
        return Err(io::Error::from(io::ErrorKind::NotFound).into());
    }
    Ok((directory, name))
}
