//! Credentials for tests.

use std::time::{Duration, SystemTime};

use crate::{Draft, EncodedCredential, Generation, Issued, LifetimeBound, Material, Now, Token};

/// A token that lives a minute.
pub fn with_token(token: &str) -> Issued {
    let token = Token { secret: token.into(), expires_at: None };
    issued(&Material { token: Some(token), pair: None })
}

/// What a plugin issued at an arbitrary time; it lives a minute.
pub fn issued(material: &Material) -> Issued {
    let wall = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
    let generation = Generation::new("e".into(), 7);
    let (expires_at, lifetime) = (wall + Duration::from_secs(60), Duration::from_secs(60));
    let (token, pair) = Draft::secrets(material);
    let fingerprint = material.pair.as_ref().map(|pair| pair.fingerprint);
    let draft =
        Draft { generation: &generation, token, pair, fingerprint, expires_at, lifetime, cluster: None };
    let encoded = plain(&draft);
    let fetched = Now { wall, boot: Duration::from_secs(500) };
    let certificate = None;
    let bound = LifetimeBound::UnknownExpiry;
    Issued { generation, encoded, fingerprint, certificate, fetched, expires_at, lifetime, bound }
}

/// The secrets one after the other, without a wire format.
pub fn plain(draft: &Draft<'_>) -> EncodedCredential {
    let mut frame = Vec::new();
    let mut put = |bytes: &[u8]| {
        let start = frame.len();
        frame.extend_from_slice(bytes);
        start..frame.len()
    };
    let token = draft.token.map(|token| put(token.as_bytes()));
    let (certificate, key) = draft.pair.map(|(chain, key)| (put(chain), put(key))).unzip();
    EncodedCredential { frame: frame.into(), token, certificate, key }
}
