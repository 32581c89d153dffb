//! Names of ClusterProfiles, and why a profile leads to no plugin.

use std::sync::Arc;

use credbroker_credential::text::listed;

/// Namespace and name of a `ClusterProfile`. Cheap to clone; sorts by namespace, then name.
#[derive(Clone, derive_more::Debug, derive_more::Display, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[debug("{self}")]
#[display("{namespace}/{name}")]
pub struct ProfileName {
    /// Namespace of the profile.
    pub namespace: Arc<str>,
    /// Name in the namespace.
    pub name: Arc<str>,
}

impl ProfileName {
    /// A name that is not checked.
    pub fn new(namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    /// The name of an object, if an API server would accept it. The broker keeps no other names of objects, so that a
    /// name is safe in a log, at a terminal, in a kubeconfig and in an argument.
    pub fn of_object(namespace: &str, name: &str) -> Option<Self> {
        let is_whole = is_subdomain(namespace) && !namespace.contains('.') && is_subdomain(name);
        is_whole.then(|| Self::new(namespace, name))
    }
}

/// Whether Kubernetes accepts `name` for an object: a subdomain of RFC 1123.
fn is_subdomain(name: &str) -> bool {
    let is_label = |label: &str| {
        let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        !label.is_empty() && !label.starts_with('-') && !label.ends_with('-') && label.bytes().all(inner)
    };
    name.len() <= 253 && name.split('.').all(is_label)
}

/// Why a profile leads to no plugin. The profile or the broker's configuration must change.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ProfileError {
    /// A value that the endpoint, a plugin or the kernel cannot take: its path in the object, what is wrong, what to do.
    #[error("{0}")]
    Invalid(String),
    /// The profile lists no configured provider. With the names in the profile, and those in the configuration, in its order.
    #[error("no provider matches: the profile lists {}; the broker has {}", listed(.0), listed(.1))]
    NoMatch(Vec<String>, Vec<String>),
}

impl ProfileError {
    /// A problem with `field`, a path in the object.
    pub(super) fn at(field: &str, problem: &str) -> Self {
        Self::Invalid(format!("{field} {problem}"))
    }

    /// The same error, with only those providers of the configuration that `shows` is true for.
    #[must_use]
    pub fn without_configured(&self, shows: impl Fn(&str) -> bool) -> Self {
        let mut error = self.clone();
        if let Self::NoMatch(_, configured) = &mut error {
            configured.retain(|name| shows(name));
        }
        error
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_an_api_server_takes_is_the_name_of_an_object() {
        for (namespace, name) in [("fleet", "paris"), ("a", "0.eu-1"), ("kube-system", &*"x".repeat(253))] {
            let expected = ProfileName::new(namespace, name);
            assert_eq!(ProfileName::of_object(namespace, name), Some(expected));
        }
        for name in
            ["", "-", "a-", "-o", "A", "a/b", "a b", "a\n", "\u{1b}[2J", "a..b", ".a", "ä", &*"x".repeat(254)]
        {
            assert_eq!(ProfileName::of_object("fleet", name), None, "{name:?}");
            assert_eq!(ProfileName::of_object(name, "paris"), None, "{name:?}");
        }
        assert_eq!(ProfileName::of_object("a.b", "paris"), None, "a namespace is one label");
    }
}
