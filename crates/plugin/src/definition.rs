//! Definitions: which provider a name means.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use credbroker_credential::text::shown_path;

/// Which stanza of which kubeconfig defines a provider. File and name are its identity; a changed stanza has another digest.
#[derive(Clone, Debug, derive_more::Display, Eq, Ord, PartialEq, PartialOrd)]
#[display("{} (--definition {digest})", self.shown_file())]
pub struct Definition {
    /// The kubeconfig that defines the provider, and the name in it.
    pub identity: (PathBuf, Arc<str>),
    /// With which a request names it.
    pub digest: Arc<str>,
    /// Whether the arguments of the shim do not describe the stanza, because that was edited. No request is answered with
    /// such a definition, or with another one that has its digest.
    pub is_outdated: bool,
}

impl Definition {
    /// The definition of the user `name` in `file`, which is absolute and has no symbolic link that another process could
    /// resolve differently. `digest` covers what the stanza runs.
    pub fn new(file: PathBuf, name: impl Into<Arc<str>>, digest: impl Into<Arc<str>>) -> Self {
        Self { identity: (file, name.into()), digest: digest.into(), is_outdated: false }
    }

    /// The kubeconfig that defines the provider.
    pub fn file(&self) -> &Path {
        &self.identity.0
    }

    /// The file, safe to print. A long path is cut to its end.
    pub fn shown_file(&self) -> String {
        shown_path(self.file())
    }
}

/// A provider as a request names it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ProviderRef {
    /// Name of the provider.
    pub name: String,
    /// [Digest](Definition::digest) of the requested definition; `None`: the only one of that name.
    pub definition: Option<String>,
}

/// The only provider of that name.
impl From<&str> for ProviderRef {
    fn from(name: &str) -> Self {
        Self { name: name.to_owned(), definition: None }
    }
}
