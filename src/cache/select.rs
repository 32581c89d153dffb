//! Which of the entries a person means.

use crate::plugin::{PluginSpec, ProfileName, ShownKey};

/// Selects entries.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Selector<'a> {
    /// All of them.
    All,
    /// Those of the providers of this name.
    Provider(&'a str),
    /// Those for this ClusterProfile.
    ClusterProfile(&'a ProfileName),
    /// Those whose key is shown like this.
    Key(ShownKey),
}

impl Selector<'_> {
    /// Whether it selects the entry of `spec`.
    pub(super) fn selects(&self, spec: &PluginSpec) -> bool {
        match self {
            Self::All => true,
            Self::Provider(name) => *spec.provider.name == **name,
            Self::ClusterProfile(name) => spec.target.as_ref().is_some_and(|target| target.profile == **name),
            Self::Key(key) => spec.key.shown() == *key,
        }
    }
}
