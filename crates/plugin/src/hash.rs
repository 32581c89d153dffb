//! SHA-256 digests, and the input of those that identify runs and definitions.

use std::{
    ffi::OsStr,
    fmt::Write as _,
    io::{self, Read},
    os::unix::ffi::OsStrExt as _,
};

use aws_lc_rs::digest::{Context, SHA256, digest};

use credbroker_credential::Cluster;

/// A SHA-256 digest.
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
        let mut hash = [0; 32];
        hash.copy_from_slice(digest(&SHA256, bytes).as_ref());
        Self(hash)
    }

    /// Of all that can be read.
    ///
    /// # Errors
    ///
    /// It cannot be read.
    pub fn of_contents(contents: &mut impl Read) -> io::Result<Self> {
        let (mut context, mut piece) = (Context::new(&SHA256), vec![0; 64 << 10]);
        loop {
            match contents.read(&mut piece)? {
                0 => break,
                read => context.update(piece.get(..read).unwrap_or_default()),
            }
        }
        let mut digest = [0; 32];
        digest.copy_from_slice(context.finish().as_ref());
        Ok(Self(digest))
    }

    /// Its 64 hexadecimal digits, in lower case.
    pub fn to_hex(self) -> String {
        self.0.iter().fold(String::with_capacity(64), |mut text, byte| {
            let _infallible = write!(text, "{byte:02x}");
            text
        })
    }
}

/// Input of a hash. Every field has a fixed size or starts with its length, and every list has its count, so two inputs
/// are equal only if all their fields are.
pub(super) struct HashInput(Vec<u8>);

impl HashInput {
    /// `version` names the layout; a new version changes every key. `large` is the size of fields that may be large.
    /// The buffer is allocated once with that size and not more, because every freed block is wiped.
    pub(super) fn new(version: &[u8], large: usize) -> Self {
        let mut fields = Self(Vec::with_capacity(large + 1024));
        fields.text(version);
        fields
    }

    fn number(&mut self, number: u64) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    pub(super) fn count(&mut self, count: usize) {
        self.number(count as u64);
    }

    pub(super) fn flag(&mut self, flag: bool) {
        self.0.push(u8::from(flag));
    }

    pub(super) fn text(&mut self, text: &[u8]) {
        self.count(text.len());
        self.0.extend_from_slice(text);
    }

    pub(super) fn variables<'a>(&mut self, sorted: impl Iterator<Item = (&'a OsStr, &'a OsStr)>) {
        let mut count = 0_usize;
        for (name, value) in sorted {
            self.text(name.as_bytes());
            self.text(value.as_bytes());
            count += 1;
        }
        self.count(count); // known only here; unambiguous, because this list is the last field
    }

    pub(super) fn cluster(&mut self, cluster: &Cluster) {
        // A new field of `Cluster` does not compile here until it is added to the key.
        let Cluster {
            server,
            tls_server_name,
            insecure_skip_tls_verify,
            certificate_authority_data,
            proxy_url,
            disable_compression,
            config,
        } = cluster;
        self.text(server.as_bytes());
        self.text(tls_server_name.as_bytes());
        self.flag(*insecure_skip_tls_verify);
        self.text(certificate_authority_data);
        self.text(proxy_url.as_bytes());
        self.flag(*disable_compression);
        self.text(config);
    }

    pub(super) fn hash(self) -> [u8; 32] {
        let mut hash = [0; 32];
        hash.copy_from_slice(digest(&SHA256, &self.0).as_ref());
        hash
    }
}

#[cfg(test)]
mod tests {
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
}
