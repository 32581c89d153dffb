//! Definitions: which provider a name means.

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::hash::HashInput;
use credbroker_credential::text::shown_path;

/// The file that defines a provider of a kubeconfig. Together with its name, it identifies the provider.
///
/// A changed stanza keeps its definition, but gets another [`PluginKey`](super::PluginKey).
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Definition {
    file: PathBuf,
    digest: Arc<str>,
}

impl Definition {
    /// The definition of the user `name` in `file`, which is absolute and has no symbolic link that another process
    /// could resolve differently.
    pub fn new(file: PathBuf, name: &str) -> Self {
        let digest = digest(&file, name);
        Self { file, digest }
    }

    /// The kubeconfig that defines the provider.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// The file, safe to print. A long path is cut to its end.
    pub fn shown_file(&self) -> String {
        shown_path(&self.file)
    }

    /// 40 hexadecimal digits: the first 160 bits of a SHA-256 over file and name. A collision takes about 2^80
    /// attempts, and a match with a given pair 2^160.
    pub fn digest(&self) -> &str {
        &self.digest
    }
}

fn digest(file: &Path, name: &str) -> Arc<str> {
    use std::{fmt::Write as _, os::unix::ffi::OsStrExt as _};
    let mut fields = HashInput::new(b"credbroker definition 1", 0);
    fields.text(file.as_os_str().as_bytes());
    fields.text(name.as_bytes());
    let mut digest = String::with_capacity(40);
    for byte in fields.hash().iter().take(20) {
        let _infallible = write!(digest, "{byte:02x}");
    }
    digest.into()
}

/// A provider as a request names it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ProviderRef {
    /// Name of the provider.
    pub name: String,
    /// [Digest](Definition::digest) of the requested definition; `None`: the only one of that name.
    pub definition: Option<String>,
}

impl ProviderRef {
    /// The only provider of that name.
    pub fn named(name: impl Into<String>) -> Self {
        Self { name: name.into(), definition: None }
    }
}

impl From<&str> for ProviderRef {
    fn from(name: &str) -> Self {
        Self::named(name)
    }
}

impl fmt::Display for Definition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (--definition {})", self.shown_file(), self.digest)
    }
}

#[cfg(test)]
mod tests;
