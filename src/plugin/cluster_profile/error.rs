//! Why a profile leads to no plugin.

use crate::plugin::shown::{listed, shown};

/// Why a profile leads to no plugin. Whoever writes the profile, or the broker's configuration, has to change it.
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
    #[error("status.{list} names provider `{}` twice, so there is no telling which endpoint is meant", shown(.provider))]
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
