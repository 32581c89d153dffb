//! Which directory the socket is in, and whether only the broker and root can replace it there.

use std::{
    fs::{self, DirBuilder, File, Metadata, OpenOptions, Permissions},
    io,
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown},
    path::{Path, PathBuf},
};

use credbroker_client::paths::{OWN_SOCKET, exposed, own_folder};
use rustix::fs::OFlags;

use super::{FileId, SocketError, SocketOptions, checks::split};

const WRITABLE_BY_OTHERS: u32 = 0o022;
const SET_GROUP: u32 = 0o2000;

/// The names of a socket.
#[derive(Clone, Debug)]
pub(super) struct SocketPlace {
    /// Where the socket is.
    pub(super) socket: PathBuf,
    /// The configured path, if it is directly in a shared directory: a second name, for clients that do not look for the
    /// broker's own folder.
    pub(super) link: Option<PathBuf>,
}

impl SocketPlace {
    /// Creates the directory of the socket, or checks the existing one.
    pub(super) fn prepare(options: &SocketOptions) -> Result<Self, SocketError> {
        let directory = split(&options.path)?.0;
        let place = Self { socket: options.path.clone(), link: None };
        match find(directory)? {
            None => create(directory, options)?,
            Some(found) if is_safe(&found) => {
                if options.shared_directory && is_shared(directory) && found.uid() == own() {
                    restore(directory, options)?;
                }
            }
            Some(_) if options.shared_directory => return Self::within_own_folder(options),
            Some(found) => return Err(unsafe_directory(directory, &found)),
        }
        place.check(options).map(|()| place)
    }

    fn within_own_folder(options: &SocketOptions) -> Result<Self, SocketError> {
        let folder = own_folder(&options.path);
        let place = Self { socket: folder.join(OWN_SOCKET), link: Some(options.path.clone()) };
        split(&place.socket)?;
        match fs::symlink_metadata(&folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => create(&folder, options)?,
            Err(error) => return Err(io_error("look at", &folder)(error)),
            Ok(found) if found.is_dir() && found.uid() == own() => restore(&folder, options)?,
            Ok(found) => return Err(SocketError::Folder { path: folder, owner: found.uid(), own: own() }),
        }
        place.check(options).map(|()| place)
    }

    /// Every name that must lead to the socket.
    pub(super) fn names(&self) -> impl Iterator<Item = &Path> {
        [Some(&self.socket), self.link.as_ref()].into_iter().flatten().map(PathBuf::as_path)
    }

    /// Checks that no user besides the broker's own and root can replace the socket, its directory, or a directory above
    /// it. One that is shared on purpose does not count.
    pub(super) fn check(&self, options: &SocketOptions) -> Result<(), SocketError> {
        let directory = split(&self.socket)?.0;
        let look = io_error("look at", directory);
        let found = fs::metadata(directory).map_err(look)?;
        if !is_safe(&found) {
            return Err(unsafe_directory(directory, &found));
        }
        let shared = directory.parent().filter(|_| options.shared_directory).map(fs::metadata);
        let shared =
            shared.transpose().map_err(io_error("look at", directory))?.map(|found| FileId::of(&found));
        let is_exempt = |_: &Path, found: &Metadata| shared == Some(FileId::of(found));
        match exposed(directory, &[0, own()], is_exempt).map_err(io_error("look at", directory))? {
            None => Ok(()),
            Some(by) => Err(SocketError::Exposed {
                directory: directory.to_owned(),
                by: by.path,
                owner: by.owner,
                mode: by.mode,
                own: own(),
            }),
        }
    }
}

fn own() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Only the broker's user and root can change what is in it.
fn is_safe(directory: &Metadata) -> bool {
    [own(), 0].contains(&directory.uid()) && directory.mode() & WRITABLE_BY_OTHERS == 0
}

/// Whether `directory` is in one that others can change.
fn is_shared(directory: &Path) -> bool {
    directory.parent().and_then(|parent| fs::metadata(parent).ok()).is_some_and(|parent| !is_safe(&parent))
}

fn find(directory: &Path) -> Result<Option<Metadata>, SocketError> {
    match fs::metadata(directory) {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(io_error("look at", directory)(error)),
    }
}

fn create(directory: &Path, options: &SocketOptions) -> Result<(), SocketError> {
    let created = DirBuilder::new().recursive(true).mode(0o700).create(directory);
    created.map_err(io_error("create the directory", directory))?;
    restore(directory, options)
}

/// Sets group and mode of a directory that the broker made. In a shared directory another user could have put a link in
/// its place, so this does not use its path.
fn restore(directory: &Path, options: &SocketOptions) -> Result<(), SocketError> {
    let flags = (OFlags::DIRECTORY | OFlags::NOFOLLOW).bits();
    let opened = OpenOptions::new().read(true).custom_flags(flags.cast_signed()).open(directory);
    let held: File = opened.map_err(io_error("open", directory))?;
    let found = held.metadata().map_err(io_error("look at", directory))?;
    if found.uid() != own() {
        return Err(SocketError::Folder { path: directory.to_owned(), owner: found.uid(), own: own() });
    }
    if options.group.is_some_and(|group| group != found.gid()) {
        fchown(&held, None, options.group).map_err(io_error("give its group to", directory))?;
    }
    // A shared directory may hand its group down, as `fsGroup` of Kubernetes does.
    let mode = directory_mode(options) | (found.mode() & SET_GROUP);
    // Set explicitly, because the umask could keep out a group that may connect.
    if found.mode() & 0o7777 != mode {
        held.set_permissions(Permissions::from_mode(mode)).map_err(io_error("set the mode of", directory))?;
    }
    Ok(())
}

/// Who may connect must be able to look up the socket.
fn directory_mode(options: &SocketOptions) -> u32 {
    match (options.shared_directory, options.mode & 0o070 != 0, options.mode & 0o007 != 0) {
        (true, _, false) if options.group.is_some() => 0o710,
        (true, _, _) => 0o711,
        (false, _, true) => 0o755,
        (false, true, false) => 0o750,
        (false, false, false) => 0o700,
    }
}

fn unsafe_directory(directory: &Path, found: &Metadata) -> SocketError {
    let (owner, mode) = (found.uid(), found.mode() & 0o7777);
    SocketError::Directory { path: directory.to_owned(), owner, mode, own: own() }
}

fn io_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> SocketError + use<> {
    let path = path.to_owned();
    move |source| SocketError::Io { action, path, source }
}
