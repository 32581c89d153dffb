//! A token says which run printed it, so that every answer can be checked.

use std::fmt;

/// The content of a token. Times are in milliseconds since 1970.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Token {
    /// The soak that the token is from.
    pub(crate) nonce: String,
    /// Name of the provider.
    pub(crate) provider: String,
    /// The caller's variable that selects the identity.
    pub(crate) profile: String,
    /// Number of the run, from 1.
    pub(crate) run: u64,
    /// When the run started.
    pub(crate) started: u64,
    /// When the credential expires.
    pub(crate) expires: u64,
}

impl Token {
    /// Reads what `Display` writes.
    pub(crate) fn read(text: &str) -> Option<Self> {
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

/// The provider of the key with this number.
pub(crate) fn provider(key: usize) -> String {
    format!("provider-{}", key % PROVIDERS)
}

/// The identity of the key with this number.
pub(crate) fn profile(key: usize) -> String {
    format!("key-{key}")
}

/// Number of providers that share the keys.
pub(crate) const PROVIDERS: usize = 5;
