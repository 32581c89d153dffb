//! Which profile.

use std::{fmt, sync::Arc};

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
