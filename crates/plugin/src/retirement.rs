//! Whether a provider is in force, or was retired by a newer configuration, and whether its credentials are shared.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU8, Ordering},
    },
};

/// Why a provider is no longer in force.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Retirement {
    /// Another definition has its name, or its kubeconfig defines it in another way.
    Changed,
    /// The configuration no longer has it.
    Removed,
}

/// Whether a provider is in force. Copies of the provider share it, also those that ClusterProfiles have added to, so that
/// one store retires all of them: a request that was resolved before cannot enter the cache afterwards.
#[derive(Clone, Default)]
pub struct Standing(Arc<StandingFlags>);

#[derive(Default)]
struct StandingFlags {
    retired: AtomicU8,
    is_shared: AtomicBool,
}

const CHANGED: u8 = 1;
const REMOVED: u8 = 2;

impl Standing {
    /// Why the provider is no longer in force; `None`: it is.
    pub fn retirement(&self) -> Option<Retirement> {
        match self.0.retired.load(Ordering::Acquire) {
            CHANGED => Some(Retirement::Changed),
            REMOVED => Some(Retirement::Removed),
            _ => None,
        }
    }

    /// Retires the provider. It is never in force again; a later definition has its own standing.
    pub(super) fn retire(&self, why: Retirement) {
        let why = match why {
            Retirement::Changed => CHANGED,
            Retirement::Removed => REMOVED,
        };
        self.0.retired.store(why, Ordering::Release);
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

impl fmt::Debug for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.retirement() {
            None => f.write_str("InForce"),
            Some(why) => write!(f, "{why:?}"),
        }
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
