//! Definitions: which provider a name means.

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::key::HashInput;

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
    pub(crate) fn shown_file(&self) -> String {
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

/// A path that is safe to print. A long path is cut to its end, where paths differ most.
pub(super) fn shown_path(path: &Path) -> String {
    const MOST: usize = 120;
    let path = path.to_string_lossy();
    let escaped: Vec<char> = path.chars().flat_map(char::escape_debug).collect();
    match escaped.len().checked_sub(MOST) {
        None | Some(0) => escaped.into_iter().collect(),
        Some(over) => std::iter::once('…').chain(escaped.into_iter().skip(over)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition(file: &str, name: &str) -> Definition {
        Definition::new(file.into(), name)
    }

    /// `wrap` and the broker are two processes, and may be two releases.
    #[test]
    fn a_digest_is_the_same_everywhere() {
        let digest = definition("/home/jane/.kube/config", "rel").digest().to_owned();
        insta::assert_snapshot!(digest, @"d889b9c90881403f1de1141d27b3624ce4dd212a");
    }

    #[test]
    fn each_pair_has_its_own_digest() {
        let pairs = [("/a", "b"), ("/ab", ""), ("/", "ab"), ("/a", "c"), ("/b", "b")];
        let digests: std::collections::HashSet<_> =
            pairs.iter().map(|(file, name)| definition(file, name).digest().to_owned()).collect();
        assert_eq!(digests.len(), pairs.len());
        assert!(digests.iter().all(|digest| digest.len() == 40));
    }

    #[test]
    fn a_path_that_is_shown_keeps_its_end_and_steers_no_terminal() {
        let path = format!("/{}/\u{1b}[2J/config", "x".repeat(500));
        let shown = shown_path(Path::new(&path));
        assert!(shown.starts_with('…') && shown.ends_with("/\\u{1b}[2J/config"), "{shown}");
        assert_eq!(shown.chars().count(), 121);
    }
}
