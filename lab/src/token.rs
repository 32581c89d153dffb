//! A token says which run printed it, so that every answer can be checked.

use std::{
    fmt,
    time::{SystemTime, UNIX_EPOCH},
};

/// The content of a token. Times are in milliseconds since 1970.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Token {
    /// The soak that the token is from.
    pub nonce: String,
    /// Name of the provider.
    pub provider: String,
    /// The caller's variable that selects the identity.
    pub profile: String,
    /// Number of the run, from 1.
    pub run: u64,
    /// When the run started.
    pub started: u64,
    /// When the credential expires.
    pub expires: u64,
}

impl Token {
    /// Reads what `Display` writes.
    pub fn read(text: &str) -> Option<Self> {
        let mut parts = text.split('.');
        let mut text = || parts.next().map(str::to_owned);
        let (nonce, provider, profile) = (text()?, text()?, text()?);
        let mut number = || text()?.parse().ok();
        let token = Self { nonce, provider, profile, run: number()?, started: number()?, expires: number()? };
        parts.next().is_none().then_some(token)
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { nonce, provider, profile, run, started, expires } = self;
        write!(f, "{nonce}.{provider}.{profile}.{run}.{started}.{expires}")
    }
}

/// Milliseconds since 1970.
pub fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.as_millis().try_into().unwrap_or(u64::MAX)
}

/// The provider of the key with this number.
pub fn provider(key: usize) -> String {
    format!("provider-{}", key % PROVIDERS)
}

/// The identity of the key with this number.
pub fn profile(key: usize) -> String {
    format!("key-{key}")
}

/// Number of providers that share the keys.
pub const PROVIDERS: usize = 5;
