//! Files of a user that commands change: as a whole or not at all, and under kubectl's lock.

use std::{
    ffi::OsString,
    fs::{self, File, OpenOptions, Permissions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown},
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use anyhow::Context as _;
use credbroker_client::safety::unsafe_directory;
use credbroker_observe::clock::{Clock as _, SystemClock};

/// A file that no other command of credbroker and no kubectl changes until this is dropped.
#[derive(Debug)]
pub(super) struct Locked {
    name: PathBuf,
    /// The file itself, if the name is a symbolic link.
    real: PathBuf,
    /// Beside the file itself.
    _lock: KubectlLock,
    /// Beside the name that was given, if that is a symbolic link: programs know the file by either.
    of_link: Option<KubectlLock>,
}

impl Locked {
    /// Locks `path`, which need not exist. Symbolic links are followed; one that leads nowhere is an error.
    pub(super) fn take(path: &Path) -> anyhow::Result<Self> {
        let shown = path.display();
        let is_link = path.is_symlink();
        let real = if is_link {
            fs::canonicalize(path).with_context(|| {
                format!("{shown} is a broken symbolic link; remove it, or name another file")
            })?
        } else {
            std::path::absolute(path)?
        };
        anyhow::ensure!(
            fs::metadata(&real).map_or(true, |found| found.is_file()),
            "{shown} is not a regular file; name another one, or - for standard output"
        );
        let of_link = is_link.then(|| KubectlLock::take(path)).transpose()?;
        Ok(Self { name: path.to_owned(), _lock: KubectlLock::take(&real)?, real, of_link })
    }

    /// Says if the file that was `done`, written or changed, is not the one that they named.
    pub(super) fn say_if_link(&self, done: &str, out: &mut dyn Write) -> io::Result<()> {
        let (name, real) = (self.name.display(), self.real.display());
        if self.of_link.is_none() {
            return Ok(());
        }
        writeln!(out, "{name} is a symbolic link; its target was {done}: {real}")
    }

    pub(super) fn read(&self) -> anyhow::Result<Option<Vec<u8>>> {
        read_if_there(&self.real)
    }

    pub(super) fn read_text(&self) -> anyhow::Result<Option<String>> {
        let text = self.read()?.map(String::from_utf8).transpose();
        text.ok().with_context(|| format!("{} is not UTF-8", self.name.display()))
    }

    pub(super) fn write_private(&self, text: &str) -> anyhow::Result<()> {
        write_private(&self.real, text)
    }

    pub(super) fn rewrite(&self, text: &str) -> anyhow::Result<()> {
        let like = fs::metadata(&self.real).ok();
        replace(&self.real, text, like.as_ref())
            .with_context(|| format!("{} cannot be written", self.real.display()))
    }
}

/// How long another program may change a file. Nothing reports the end of its lock.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);
const LOCK_POLL: Duration = Duration::from_millis(10);

#[derive(Debug)]
struct KubectlLock(PathBuf);

impl KubectlLock {
    fn take(path: &Path) -> anyhow::Result<Self> {
        let shown = path.display();
        let mut lock = path.as_os_str().to_owned();
        lock.push(".lock");
        let lock = PathBuf::from(lock);
        let until = SystemClock.now().boot + LOCK_TIMEOUT;
        loop {
            match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&lock) {
                Ok(_) => return Ok(Self(lock)),
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(error)
                        .with_context(|| format!("{shown} cannot be written: {}", lock.display()));
                }
                Err(_) if SystemClock.now().boot < until => thread::sleep(LOCK_POLL),
                Err(_) => anyhow::bail!(
                    "{shown} is locked: another program is changing it; try again, or remove {} if there is no such program",
                    lock.display()
                ),
            }
        }
    }
}

impl Drop for KubectlLock {
    fn drop(&mut self) {
        drop(fs::remove_file(&self.0));
    }
}

/// The contents of the file at `path`. `None`: there is no such file.
pub(super) fn read_if_there(path: &Path) -> anyhow::Result<Option<Vec<u8>>> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("{} cannot be read", path.display())),
    }
}

/// Replaces the file at `path` by one with `text` that only its owner can read.
pub(super) fn write_private(path: &Path, text: &str) -> anyhow::Result<()> {
    replace(path, text, None).with_context(|| format!("{} cannot be written", path.display()))
}

/// Creates the directory at `path`, and those above it, for their owner only.
pub(super) fn private_directory(path: &Path) -> anyhow::Result<()> {
    create(path, |_| 0o700)
}

/// Creates the directory at `path`, and those above it, where programs of a user look for files. Others can read them,
/// but `~/.config` and `~/.local` are for their owner only.
pub(super) fn shared_directory(path: &Path) -> anyhow::Result<()> {
    let is_private = |path: &Path| path.ends_with(".config") || path.ends_with(".local");
    create(path, |path| if is_private(path) { 0o700 } else { 0o755 })
}

/// Creates the directories with these modes, which do not depend on the umask.
fn create(path: &Path, mode: impl Fn(&Path) -> u32) -> anyhow::Result<()> {
    let make = |path: &&Path| match fs::DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => fs::set_permissions(path, Permissions::from_mode(mode(path))),
        // Another process was faster.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        Err(error) => Err(error),
    };
    let missing: Vec<_> = path.ancestors().take_while(|above| !above.is_dir()).collect();
    let created = missing.iter().rev().try_for_each(make);
    created.with_context(|| format!("the directory {} cannot be created", path.display()))
}

/// Refuses a directory, or what exists of the way to it, in which other users can make or replace files.
pub(super) fn check_directory(path: &Path) -> anyhow::Result<()> {
    let existing = path.ancestors().find(|above| above.is_dir()).unwrap_or(Path::new("/"));
    let found =
        unsafe_directory(existing).with_context(|| format!("{} cannot be checked", existing.display()))?;
    found.map_or(Ok(()), |by| {
        anyhow::bail!("{}: {}", path.display(), by.problem("decide what your programs read there"))
    })
}

/// The new file has the mode and the owner of `like`, else 0600 and ours.
fn replace(path: &Path, text: &str, like: Option<&fs::Metadata>) -> io::Result<()> {
    let dir = directory(path);
    let mut file = tempfile::Builder::new().prefix(".credbroker-").tempfile_in(dir)?; // 0600 from the start
    file.write_all(text.as_bytes())?;
    if let Some(like) = like {
        let ours = file.as_file().metadata()?;
        if (ours.uid(), ours.gid()) != (like.uid(), like.gid()) {
            fchown(file.as_file(), Some(like.uid()), Some(like.gid()))?;
        }
        file.as_file().set_permissions(Permissions::from_mode(like.mode() & 0o777))?;
    }
    file.as_file().sync_all()?;
    file.persist(path)?;
    File::open(dir)?.sync_all()
}

pub(super) fn joined(paths: impl IntoIterator<Item: AsRef<Path>>, separator: &str) -> String {
    paths.into_iter().map(|path| path.as_ref().display().to_string()).collect::<Vec<_>>().join(separator)
}

/// Whether both paths name one file: the same directory entry, or the same inode.
pub(super) fn is_same(one: &Path, other: &Path) -> bool {
    let entry = |path: &Path| -> Option<(PathBuf, OsString)> {
        Some((fs::canonicalize(directory(path)).ok()?, path.file_name()?.to_owned()))
    };
    let inode = |path: &Path| fs::metadata(path).map(|metadata| (metadata.dev(), metadata.ino())).ok();
    (entry(one).is_some() && entry(one) == entry(other))
        || (inode(one).is_some() && inode(one) == inode(other))
}

fn directory(path: &Path) -> &Path {
    path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests;
