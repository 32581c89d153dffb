//! The SHA-256 that a plugin's file must have.

use std::{
    fmt::Write as _,
    fs::{File, Metadata},
    io::{self, Read as _},
    os::unix::fs::MetadataExt as _,
    path::Path,
    sync::{Mutex, PoisonError},
};

use aws_lc_rs::digest::{Context, SHA256};

use super::refusal::Refusal;

/// The SHA-256 that a plugin's file must have.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Sha256(pub [u8; 32]);

impl Sha256 {
    /// Reads 64 hexadecimal digits.
    pub fn from_hex(text: &str) -> Option<Self> {
        let digits = text.bytes().map(|byte| char::from(byte).to_digit(16)).collect::<Option<Vec<_>>>()?;
        let bytes = digits.chunks_exact(2).map(|pair| pair.iter().fold(0, |byte, digit| byte << 4 | digit));
        let bytes = bytes.map(u8::try_from).collect::<Result<Vec<_>, _>>().ok()?;
        (digits.len() == 64).then(|| bytes.try_into().ok().map(Self)).flatten()
    }

    /// Of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        let mut digest = [0; 32];
        digest.copy_from_slice(aws_lc_rs::digest::digest(&SHA256, bytes).as_ref());
        Self(digest)
    }

    /// Its 64 hexadecimal digits, in lower case.
    pub fn to_hex(self) -> String {
        self.0.iter().fold(String::with_capacity(64), |mut text, byte| {
            let _infallible = write!(text, "{byte:02x}");
            text
        })
    }
}

/// A pin, and the digest of the file that was read last: a file is read again only when it has changed.
#[derive(Debug)]
pub(super) struct Pin {
    wanted: Sha256,
    known: Mutex<Option<(Identity, Sha256)>>,
}

/// Changes with each write to a file, even if its times are set back: the kernel alone sets the time of the last status change.
type Identity = (u64, u64, u64, (i64, i64), (i64, i64));

impl Pin {
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

fn identity(metadata: &Metadata) -> Identity {
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
mod tests {
    use std::fs;

    use super::*;

    const OF_ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    #[test]
    fn a_digest_is_64_hexadecimal_digits() {
        assert_eq!(Sha256::from_hex(OF_ABC), Some(Sha256::of(b"abc")));
        assert_eq!(Sha256::of(b"abc").to_hex(), OF_ABC);
        assert_eq!(Sha256::from_hex(&OF_ABC.to_uppercase()), Sha256::from_hex(OF_ABC));
        for other in ["", "ab", &OF_ABC[1..], &format!("{OF_ABC}00"), &OF_ABC.replace('b', "g")] {
            assert_eq!(Sha256::from_hex(other), None, "{other}");
        }
    }

    #[test]
    fn a_file_with_other_contents_is_refused_also_after_its_time_was_set_back() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("plugin");
        fs::write(&path, "abc").unwrap();
        let pin = Pin::new(Sha256::from_hex(OF_ABC).unwrap());
        assert_eq!(pin.refusal(&path).unwrap(), None);
        let written = fs::metadata(&path).unwrap().modified().unwrap();
        fs::write(&path, "abd").unwrap();
        File::options().write(true).open(&path).unwrap().set_modified(written).unwrap();
        let refusal = pin.refusal(&path).unwrap();
        assert!(matches!(refusal, Some(Refusal::Digest { actual }) if actual.starts_with("a52d159f")));
        fs::write(&path, "abc").unwrap();
        assert_eq!(pin.refusal(&path).unwrap(), None);
        assert!(pin.refusal(&home.path().join("absent")).is_err());
    }
}
