//! Which keys an operation is for.

use std::{fmt, str::FromStr, sync::Arc};

use crate::plugin::{PluginKey, ProfileName};

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

    pub(crate) fn matches(&self, key: &PluginKey) -> bool {
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
mod tests {
    use super::*;

    #[test]
    fn a_key_is_found_by_the_text_that_shows_it() {
        let key = PluginKey(std::array::from_fn(|index| 0xf0 ^ u8::try_from(index).unwrap()));
        let prefix: KeyPrefix = key.to_string().parse().unwrap();
        assert_eq!(prefix.to_string(), key.to_string());
        assert!(prefix.matches(&key));
        let other = PluginKey(key.0.map(|byte| byte ^ 1));
        assert!(!prefix.matches(&other));
        assert!(key.to_string().to_uppercase().parse::<KeyPrefix>().unwrap().matches(&key));
        assert!("f0".repeat(32).parse::<KeyPrefix>().is_ok());
    }

    #[test]
    fn other_texts_are_not_keys() {
        let long = "00".repeat(33);
        for text in [
            "",
            "00",
            "0011223344",
            "00112233445",
            "0011223344556",
            "00112233445g",
            "+1+1+1+1+1+1",
            "0é0é0é0é",
            &long,
        ] {
            assert_eq!(text.parse::<KeyPrefix>(), Err(InvalidKey), "{text}");
        }
    }
}
