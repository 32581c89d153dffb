//! Credentials that a kubeconfig has without a plugin.

use std::{path::PathBuf, sync::Arc};

/// The credential of a user who runs no plugin: a token, a client certificate with its key, or both.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct StoredCredential {
    /// The bearer token.
    pub token: Option<StoredValue>,
    /// The PEM chain and its key.
    pub pair: Option<[StoredValue; 2]>,
}

/// Where one value is. `Debug` does not show it.
#[derive(Clone, derive_more::Debug, Eq, PartialEq)]
pub enum StoredValue {
    /// In the kubeconfig.
    #[debug("Inline")]
    Inline(Arc<str>),
    /// In this file, whose path is absolute. It is read again while the credential is used.
    File(PathBuf),
}

impl StoredCredential {
    /// Its values: the token, the chain and the key.
    pub fn values(&self) -> impl Iterator<Item = &StoredValue> {
        self.token.iter().chain(self.pair.iter().flatten())
    }

    /// Whether a file can change it without a change of the kubeconfig.
    pub fn has_file(&self) -> bool {
        self.values().any(|value| matches!(value, StoredValue::File(_)))
    }
}
