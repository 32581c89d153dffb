//! The name of a ClusterProfile, and why one leads to no plugin.

use std::{fmt, sync::Arc};

use crate::text::{listed, shown};

/// Namespace and name of a `ClusterProfile`. Cheap to clone; sorts by namespace, then name.
#[derive(Clone, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ProfileName {
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its name there.
    pub name: Arc<str>,
}

impl ProfileName {
    /// Of these two.
    pub fn new(namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    /// Of an object, if it has names that an API server gives. No other is ever kept, so that a name can stand in a log,
    /// at a terminal, in a kubeconfig and in an argument.
    pub fn of_object(namespace: &str, name: &str) -> Option<Self> {
        let is_whole = is_subdomain(namespace) && !namespace.contains('.') && is_subdomain(name);
        is_whole.then(|| Self::new(namespace, name))
    }
}

/// As RFC 1123 has it: what Kubernetes takes for the name of an object.
fn is_subdomain(name: &str) -> bool {
    let is_label = |label: &str| {
        let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        !label.is_empty() && !label.starts_with('-') && !label.ends_with('-') && label.bytes().all(inner)
    };
    name.len() <= 253 && name.split('.').all(is_label)
}

impl fmt::Display for ProfileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl fmt::Debug for ProfileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// Why a profile leads to no plugin. The profile or the broker's configuration must change.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ProfileError {
    /// A value that the endpoint, a plugin or the kernel cannot take.
    #[error("{field} {problem}")]
    Invalid {
        /// Where in the object.
        field: String,
        /// What is wrong with it, and what to do.
        problem: &'static str,
    },
    /// A value of another shape.
    #[error("{field} must be {expected}")]
    Malformed {
        /// Where in the object.
        field: String,
        /// What it should be.
        expected: &'static str,
    },
    /// No configured provider is one that the profile lists.
    #[error("no provider matches: the profile lists {}; the broker has {}", listed(.profile), listed(.configured))]
    NoMatch {
        /// Names in the profile.
        profile: Vec<String>,
        /// Names in the configuration, in its order.
        configured: Vec<String>,
    },
    /// One name with two endpoints.
    #[error("status.{list} names provider `{}` twice, so the endpoint is ambiguous", shown(.provider))]
    Repeated {
        /// The name.
        provider: String,
        /// Which list.
        list: &'static str,
    },
    /// A variable that no profile may set: it would change what the plugin runs or whom it talks to.
    #[error("{field} sets `{}`, which a ClusterProfile may not set under any policy; set it in the provider's `env`", shown(.variable))]
    VariableDenied {
        /// Where in the object.
        field: String,
        /// Its name.
        variable: String,
    },
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
