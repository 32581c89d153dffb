//! The service behind a plugin, and how often it may be asked.

use std::{num::NonZeroUsize, sync::Arc};

/// The service that issues the credentials of one or more providers: an identity provider, a cloud account. All runs of
/// its providers share its budget.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Issuer {
    /// Its name: the provider's `issuer`, else the provider's own name.
    pub name: Arc<str>,
    /// Runs that are started in any second.
    pub runs_per_second: NonZeroUsize,
    /// Runs at a time.
    pub concurrency: NonZeroUsize,
}

impl Issuer {
    /// An issuer with the default rate, 10 runs in a second.
    pub fn new(name: impl Into<Arc<str>>, concurrency: NonZeroUsize) -> Self {
        let runs_per_second = NonZeroUsize::new(10).unwrap_or(NonZeroUsize::MIN);
        Self { name: name.into(), runs_per_second, concurrency }
    }
}
