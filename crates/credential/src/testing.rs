//! Credentials for tests.

use std::time::{Duration, SystemTime};

use crate::{Draft, EncodedCredential, Generation, Issued, Lifetime, LifetimeBound, Material, Now, Token};

/// A token that lives a minute.
pub fn with_token(token: &str) -> Issued {
    let token = Token { secret: token.into(), expires_at: None };
    issued(&Material { token: Some(token), pair: None })
}

/// What a plugin issued at an arbitrary time; it lives a minute.
pub fn issued(material: &Material) -> Issued {
    let wall = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
    let (expires_at, bound) = (wall + Duration::from_secs(60), LifetimeBound::UnknownExpiry);
    let lifetime = Lifetime { expires_at, within_skew: false, bound };
    let (generation, fetched) =
        (Generation::new("e".into(), 7), Now { wall, boot: Duration::from_secs(500) });
    Draft { generation, material, fetched, lifetime, cluster: None }.issue(plain)
}

/// The secrets one after the other, without a wire format.
pub fn plain(draft: &Draft<'_>) -> EncodedCredential {
    let mut frame = Vec::new();
    let mut put = |bytes: &[u8]| {
        let start = frame.len();
        frame.extend_from_slice(bytes);
        start..frame.len()
    };
    let token = draft.material.token().map(|token| put(token.as_bytes()));
    let (certificate, key) = draft.material.pem().map(|[chain, key]| (put(chain), put(key))).unzip();
    EncodedCredential { frame: frame.into(), token, certificate, key }
}
