//! The material of a credential: a token, a certificate with its key, or both.

use std::{fmt, time::SystemTime};

use secrecy::{SecretSlice, SecretString};

/// The material that a plugin returned. A key always comes with its certificate.
#[derive(Debug, Default)]
pub struct Material {
    /// Bearer token.
    pub token: Option<Token>,
    /// Client certificate and key.
    pub pair: Option<ClientPair>,
}

/// A bearer token.
#[derive(Debug)]
pub struct Token {
    /// Its text, without control characters.
    pub secret: SecretString,
    /// The `exp` claim if it is a JWT. The signature is not verified, so the claim may only shorten a lifetime.
    pub expires_at: Option<SystemTime>,
}

/// A client certificate chain and its private key, byte for byte as the plugin printed them.
#[derive(Debug)]
pub struct ClientPair {
    /// PEM, leaf first.
    pub chain_pem: SecretSlice<u8>,
    /// PEM; belongs to the leaf.
    pub key_pem: SecretSlice<u8>,
    /// Changes if and only if the TLS identity does.
    pub fingerprint: Fingerprint,
    /// `NotBefore` of the leaf.
    pub not_before: SystemTime,
    /// `NotAfter` of the leaf.
    pub not_after: SystemTime,
}

/// SHA-256 of the DER certificates of a chain. It does not include the key, which belongs to the leaf.
#[derive(Clone, Copy, Eq, Hash, PartialEq)]
pub struct Fingerprint(pub [u8; 32]);

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_prints_in_hexadecimal() {
        assert_eq!(Fingerprint([0xa1; 32]).to_string(), "a1".repeat(32));
    }
}
