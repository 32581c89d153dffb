//! The service behind one or more providers.

use std::{num::NonZeroUsize, sync::Arc};

/// The service that issues the credentials of one or more providers: an identity provider, a cloud account. The runs of
/// these providers share its budget.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Issuer {
    /// Name of the issuer: the provider's `issuer`, else the provider's own name, with the file of a kubeconfig's user.
    pub name: Arc<str>,
    /// Maximum number of runs that start in any second.
    pub runs_per_second: NonZeroUsize,
    /// Maximum number of runs at a time.
    pub concurrency: NonZeroUsize,
}

impl Issuer {
    /// An issuer with the default rate, 10 runs in a second.
    pub fn new(name: impl Into<Arc<str>>, concurrency: NonZeroUsize) -> Self {
        let runs_per_second = NonZeroUsize::new(10).unwrap_or(NonZeroUsize::MIN);
        Self { name: name.into(), runs_per_second, concurrency }
    }
}
