//! The SHA-256 that a plugin's file must have.

use std::{
    fs::{File, Metadata},
    io::{self, Read as _},
    os::unix::fs::MetadataExt as _,
    path::Path,
    sync::{Mutex, PoisonError},
};

use aws_lc_rs::digest::{Context, SHA256};

use super::{refusal::Refusal, sha256::Sha256};

/// A pin, and the digest of the file that was read last: a file is read again only when it has changed.
#[derive(Debug)]
pub(super) struct FilePin {
    wanted: Sha256,
    known: Mutex<Option<(FileIdentity, Sha256)>>,
}

/// Changes with each write to a file, even if its times are set back: the kernel alone sets the time of the last status change.
type FileIdentity = (u64, u64, u64, (i64, i64), (i64, i64));

impl FilePin {
    pub(super) fn new(wanted: Sha256) -> Self {
        Self { wanted, known: Mutex::default() }
    }

    /// Why the file at `path` may not run.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or changes while it is read.
    pub(super) fn refusal(&self, path: &Path) -> io::Result<Option<Refusal>> {
        let mut file = File::open(path)?;
        let identity = identity(&file.metadata()?);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let actual = match *known {
            Some((same, digest)) if same == identity => digest,
            _ => digest(&mut file)?,
        };
        if self::identity(&file.metadata()?) != identity {
            return Err(io::Error::other("it changed while it was read"));
        }
        *known = Some((identity, actual));
        Ok((actual != self.wanted).then(|| Refusal::Digest { actual: actual.to_hex() }))
    }
}

fn identity(metadata: &Metadata) -> FileIdentity {
    let (modified, changed) =
        ((metadata.mtime(), metadata.mtime_nsec()), (metadata.ctime(), metadata.ctime_nsec()));
    (metadata.dev(), metadata.ino(), metadata.size(), modified, changed)
}

fn digest(file: &mut File) -> io::Result<Sha256> {
    let mut context = Context::new(&SHA256);
    let mut piece = vec![0; 64 << 10];
    loop {
        match file.read(&mut piece)? {
            0 => break,
            read => context.update(piece.get(..read).unwrap_or_default()),
        }
    }
    let mut digest = [0; 32];
    digest.copy_from_slice(context.finish().as_ref());
    Ok(Sha256(digest))
}

#[cfg(test)]
mod tests;
