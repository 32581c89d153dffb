//! Which keys an operation is for.

use std::{fmt, str::FromStr, sync::Arc};

use credbroker_plugin::{PluginKey, ProfileName};

/// Selects keys to list, refresh or evict.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Selector {
    /// Every key.
    All,
    /// The keys of all providers of this name, in whichever files they are defined.
    Provider(Arc<str>),
    /// The keys of one definition of a provider.
    Definition {
        /// Name of the provider.
        provider: Arc<str>,
        /// Digest of the definition.
        definition: Arc<str>,
    },
    /// The keys of one ClusterProfile.
    ClusterProfile(ProfileName),
    /// The keys that begin with these bytes: one, unless two hashes collide.
    Key(KeyPrefix),
    /// These keys.
    Keys(Arc<[PluginKey]>),
}

/// The first bytes of a [`PluginKey`], at least as many as its `Display` shows.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct KeyPrefix(Box<[u8]>);

/// The text is not a key as the broker shows it.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("a key must have 12 to 64 hexadecimal digits, an even number of them")]
pub struct InvalidKey;

impl KeyPrefix {
    /// The bytes that `Display` of a key shows.
    const SHORTEST: usize = 6;

    /// Whether `key` begins with it.
    pub fn matches(&self, key: &PluginKey) -> bool {
        key.0.starts_with(&self.0)
    }
}

impl FromStr for KeyPrefix {
    type Err = InvalidKey;

    fn from_str(text: &str) -> Result<Self, InvalidKey> {
        if !text.len().is_multiple_of(2) {
            return Err(InvalidKey);
        }
        let digit = |digit: u8| char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        let byte = |pair: &[u8]| match pair {
            [high, low] => Some(16 * digit(*high)? + digit(*low)?),
            _ => None,
        };
        let bytes: Option<Box<[u8]>> = text.as_bytes().chunks_exact(2).map(byte).collect();
        bytes
            .filter(|bytes| (Self::SHORTEST..=size_of::<PluginKey>()).contains(&bytes.len()))
            .map(Self)
            .ok_or(InvalidKey)
    }
}

impl fmt::Display for KeyPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests;
