//! Which credentials of the broker's cache are meant.

use credbroker_proto::v1::{ClusterProfileRef, CredentialSelector, credential_selector};

/// Selects credentials in the broker's cache.
///
/// ```
/// let gke = credbroker_client::Selector::Provider("gke".to_owned());
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Selector {
    /// All of them.
    All,
    /// Those of the providers of this name.
    Provider(String),
    /// Those for a ClusterProfile.
    ClusterProfile {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// The one with this `CredentialState.key`.
    Key(String),
}

impl From<Selector> for CredentialSelector {
    fn from(selector: Selector) -> Self {
        let selector = match selector {
            Selector::All => credential_selector::Selector::All(true),
            Selector::Provider(name) => credential_selector::Selector::Provider(name),
            Selector::ClusterProfile { namespace, name } => {
                credential_selector::Selector::ClusterProfile(ClusterProfileRef { namespace, name })
            }
            Selector::Key(key) => credential_selector::Selector::Key(key),
        };
        Self { selector: Some(selector) }
    }
}
