//! Whether a provider was retired by a newer configuration, and whether its credentials are shared.

use std::{
    fmt,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

/// Why a provider is no longer used.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Retirement {
    /// Another definition has its name, or its kubeconfig defines it in another way.
    Changed,
    /// The configuration no longer has it.
    Removed,
}

/// What changes of a provider while it is used. Copies of the provider share it, also those that ClusterProfiles have added
/// to, so that one store retires all of them: a request that was resolved before cannot enter the cache afterwards.
#[derive(Clone, Debug, Default)]
pub struct ProviderState(Arc<Flags>);

#[derive(Debug, Default)]
struct Flags {
    retired: OnceLock<Retirement>,
    is_shared: AtomicBool,
}

impl ProviderState {
    /// Why the provider is no longer used; `None`: it is.
    pub fn retirement(&self) -> Option<Retirement> {
        self.0.retired.get().copied()
    }

    /// Retires the provider. It is never used again; a later definition has its own state.
    pub(super) fn retire(&self, why: Retirement) {
        // A retired provider stays so, for the first reason.
        let _is_retired = self.0.retired.set(why);
    }

    /// Whether rules give its credentials to other users than the broker's own and root.
    pub fn is_shared(&self) -> bool {
        self.0.is_shared.load(Ordering::Acquire)
    }

    /// Sets whether rules give its credentials to others.
    pub fn set_shared(&self, is_shared: bool) {
        self.0.is_shared.store(is_shared, Ordering::Release);
    }
}

impl PartialEq for ProviderState {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Display for Retirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Changed => "changed",
            Self::Removed => "was removed",
        })
    }
}
