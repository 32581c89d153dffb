//! SHA-256 digests.

use std::{
    fmt,
    io::{self, Read},
};

use aws_lc_rs::digest::{Context, Digest, SHA256, digest};

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
        digest(&SHA256, bytes).into()
    }

    /// Of all that can be read.
    pub fn of_contents(contents: &mut impl Read) -> io::Result<Self> {
        let (mut context, mut piece) = (Context::new(&SHA256), vec![0; 64 << 10]);
        loop {
            match contents.read(&mut piece)? {
                0 => return Ok(context.finish().into()),
                read => context.update(piece.get(..read).unwrap_or_default()),
            }
        }
    }
}

/// Its 64 hexadecimal digits, in lower case.
impl fmt::Display for Sha256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl From<Digest> for Sha256 {
    fn from(digest: Digest) -> Self {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(digest.as_ref());
        Self(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OF_ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    #[test]
    fn a_digest_is_64_hexadecimal_digits() {
        assert_eq!(Sha256::from_hex(OF_ABC), Some(Sha256::of(b"abc")));
        assert_eq!(Sha256::of(b"abc").to_string(), OF_ABC);
        assert_eq!(Sha256::from_hex(&OF_ABC.to_uppercase()), Sha256::from_hex(OF_ABC));
        for other in ["", "ab", &OF_ABC[1..], &format!("{OF_ABC}00"), &OF_ABC.replace('b', "g")] {
            assert_eq!(Sha256::from_hex(other), None, "{other}");
        }
    }
}
