//! The keys of the proxy, in files, so that a restart changes neither the authority that clients know nor their handles.
//!
//! They authenticate connections within this machine only. Their directory is in memory, so each boot makes new ones.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, Permissions},
    io::{self, Read as _, Write as _},
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use aws_lc_rs::rand;
use credbroker_client::safety::{unsafe_directory, unsafe_file};
use rustix::fs::OFlags;
use zeroize::Zeroizing;

use crate::{
    handle::{HandleKey, KEY},
    tls::{Authority, AuthorityError},
};

/// The certificate authority, which kubeconfigs name by the path of this file.
pub const AUTHORITY: &str = "ca.crt";
/// The socket that gives out handles.
pub const HANDLES: &str = "handles.sock";
const AUTHORITY_KEY: &str = "ca.key";
const HANDLE_KEY: &str = "handle.key";
/// More than any of the files has.
const MOST: usize = 16 * 1024;

/// Why there are no keys.
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    /// The authority cannot be made, or its key cannot be used.
    #[error("the certificate authority in {0} cannot be used; remove its files, then start the proxy again")]
    Authority(PathBuf, #[source] AuthorityError),
    /// The system has no random numbers.
    #[error("no random numbers")]
    Random,
    /// A key that others can read, or that is not one.
    #[error("{0} is not a private key of this proxy; remove it, then start the proxy again")]
    Unusable(PathBuf),
    /// Others decide what is in it.
    #[error("{0}")]
    Unsafe(String),
    /// A call failed.
    #[error("cannot {0} {1}")]
    Io(&'static str, PathBuf, #[source] io::Error),
}

/// The keys of a proxy.
#[derive(Debug)]
pub struct Keys {
    /// Signs handles.
    pub(crate) handles: HandleKey,
    /// Signs the certificate of the loopback port.
    pub(crate) authority: Authority,
}

impl Keys {
    /// Reads the keys in `directory`, and makes those that are not there. Of proxies that start in parallel, all get the same.
    ///
    /// # Errors
    ///
    /// They cannot be read or made, or other users can change them.
    pub fn open(directory: &Path) -> Result<Self, KeysError> {
        prepare(directory)?;
        let handles = file(&directory.join(HANDLE_KEY), 0o600, || {
            let mut key = Zeroizing::new(vec![0; KEY]);
            rand::fill(&mut key).map_err(|_unspecified| KeysError::Random)?;
            Ok(key)
        })?;
        let Some(handles) = handles.first_chunk().filter(|_| handles.len() == KEY) else {
            return Err(KeysError::Unusable(directory.join(HANDLE_KEY)));
        };
        let cannot = |error| KeysError::Authority(directory.to_owned(), error);
        let key = file(&directory.join(AUTHORITY_KEY), 0o600, || Authority::new_key().map_err(cannot))?;
        let made = || Authority::certificate(&key).map_err(cannot).map(Zeroizing::new);
        let certificate = file(&directory.join(AUTHORITY), 0o444, made)?;
        let authority = Authority::open(&key, &certificate).map_err(cannot)?;
        Ok(Self { handles: HandleKey::new(handles), authority })
    }
}

/// Every user may look up the certificate in it, and no other user may change it.
fn prepare(directory: &Path) -> Result<(), KeysError> {
    let io = |action| move |error| KeysError::Io(action, directory.to_owned(), error);
    if !directory.try_exists().map_err(io("look at the directory"))? {
        DirBuilder::new()
            .recursive(true)
            .mode(0o755)
            .create(directory)
            .map_err(io("create the directory"))?;
        // The umask may have taken the rights of others.
        fs::set_permissions(directory, Permissions::from_mode(0o755)).map_err(io("set the mode of"))?;
    }
    match unsafe_directory(directory).map_err(io("look at the directory"))? {
        None => Ok(()),
        Some(by) => Err(KeysError::Unsafe(by.problem("act as the proxy"))),
    }
}

/// The contents of the file at `path`. If there is none, it gets those that `make` returns, and this mode.
fn file(
    path: &Path,
    mode: u32,
    make: impl Fn() -> Result<Zeroizing<Vec<u8>>, KeysError>,
) -> Result<Zeroizing<Vec<u8>>, KeysError> {
    if let Some(contents) = read(path, mode)? {
        return Ok(contents);
    }
    let contents = make()?;
    let temporary = path.with_file_name(format!(".{:016x}", random()?));
    let placed = write(&temporary, mode, &contents)
        // Fails if another process was first: then that one's counts.
        .and_then(|()| match fs::hard_link(&temporary, path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            linked => linked,
        });
    let _gone = fs::remove_file(&temporary);
    placed.map_err(|error| KeysError::Io("write", path.to_owned(), error))?;
    read(path, mode)?.ok_or_else(|| KeysError::Unusable(path.to_owned()))
}

fn write(path: &Path, mode: u32, contents: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode & 0o600).open(path)?;
    file.write_all(contents)?;
    file.set_permissions(Permissions::from_mode(mode))
}

fn random() -> Result<u64, KeysError> {
    let mut bytes = [0; 8];
    rand::fill(&mut bytes).map_err(|_unspecified| KeysError::Random)?;
    Ok(u64::from_ne_bytes(bytes))
}

/// `None`: there is no such file.
fn read(path: &Path, mode: u32) -> Result<Option<Zeroizing<Vec<u8>>>, KeysError> {
    let io = |action| move |error| KeysError::Io(action, path.to_owned(), error);
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits();
    let file: File = match OpenOptions::new().read(true).custom_flags(flags.cast_signed()).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(io("open"))?,
    };
    let found = file.metadata().map_err(io("look at"))?;
    // Others may read no more than the mode says.
    if !found.is_file() || found.mode() & 0o777 & !mode & 0o077 != 0 {
        return Err(KeysError::Unusable(path.to_owned()));
    }
    if let Some(by) = unsafe_file(path, &found).map_err(io("look at"))?.first() {
        return Err(KeysError::Unsafe(by.problem("act as the proxy")));
    }
    let mut contents = Zeroizing::new(Vec::with_capacity(MOST));
    file.take(MOST as u64).read_to_end(&mut contents).map_err(io("read"))?;
    Ok(Some(contents))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use credbroker_test_support::private_directory;

    use super::*;

    #[test]
    fn keys_are_made_once_and_only_the_authority_is_for_others() {
        let parent = private_directory();
        let directory = parent.path().join("proxy");
        Keys::open(&directory).unwrap();
        let files = || -> Vec<_> {
            let read = |name| (fs::read(directory.join(name)).unwrap(), mode(&directory.join(name)));
            [AUTHORITY, AUTHORITY_KEY, HANDLE_KEY].into_iter().map(read).collect()
        };
        let first = files();
        assert_eq!(first.iter().map(|(_, mode)| *mode).collect::<Vec<_>>(), [0o444, 0o600, 0o600]);
        assert_eq!((mode(&directory), fs::read_dir(&directory).unwrap().count()), (0o755, 3));
        Keys::open(&directory).unwrap();
        assert!(first == files(), "another start changes nothing");
        fs::remove_file(directory.join(AUTHORITY)).unwrap();
        Keys::open(&directory).unwrap();
        assert!(directory.join(AUTHORITY).exists());
    }

    #[test]
    fn a_key_that_others_can_read_or_change_is_not_used() {
        let parent = private_directory();
        let directory = parent.path().join("proxy");
        let key = directory.join(HANDLE_KEY);
        let error = || Keys::open(&directory).unwrap_err();
        Keys::open(&directory).unwrap();
        fs::set_permissions(&key, Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(error(), KeysError::Unusable(path) if path == key));
        fs::set_permissions(&key, Permissions::from_mode(0o602)).unwrap();
        assert!(matches!(error(), KeysError::Unusable(path) if path == key));
        fs::remove_file(&key).unwrap();
        symlink("/dev/zero", &key).unwrap();
        assert!(matches!(error(), KeysError::Io("open", ..)));
        fs::remove_file(&key).unwrap();
        fs::write(&key, [7; KEY - 1]).unwrap();
        fs::set_permissions(&key, Permissions::from_mode(0o600)).unwrap();
        assert!(matches!(error(), KeysError::Unusable(path) if path == key), "half a key");
        fs::remove_file(&key).unwrap();
        fs::set_permissions(&directory, Permissions::from_mode(0o777)).unwrap();
        assert!(matches!(error(), KeysError::Unsafe(_)));
    }

    #[test]
    fn a_key_of_another_authority_is_not_used() {
        let [one, two] = [private_directory(), private_directory()];
        for directory in [&one, &two] {
            Keys::open(directory.path()).unwrap();
        }
        fs::copy(two.path().join(AUTHORITY_KEY), one.path().join(AUTHORITY_KEY)).unwrap();
        assert!(matches!(Keys::open(one.path()), Err(KeysError::Authority(..))));
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o777
    }
}
