//! Why a credential is not served.

use std::{sync::Arc, time::Duration};

use crate::{credential::LifetimeError, exec::RunError};

/// Why there is no credential. Cheap to clone: all who waited for a run share it.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CacheError {
    /// The broker is shutting down.
    #[error("the broker is shutting down; ask again, its successor will answer")]
    Draining,
    /// No room for another key, and none is idle.
    #[error("the broker holds {limit} credentials, all in use; raise `limits.entries`")]
    Full {
        /// `limits.entries`.
        limit: usize,
    },
    /// The plugin's credential had expired when it arrived.
    #[error("plugin `{command}` printed an expired credential")]
    Lifetime {
        /// The plugin's executable.
        command: Arc<str>,
        /// What had expired, and when.
        source: LifetimeError,
    },
    /// The run gave no credential.
    #[error(transparent)]
    Run(#[from] RunError),
}

/// A failure, and when it is worth asking again.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{error}")]
pub struct Failed {
    /// What went wrong.
    pub error: CacheError,
    /// How long the failure is held: an earlier ask gets it again, without a run.
    pub retry_after: Duration,
}

/// One that is not held.
impl From<CacheError> for Failed {
    fn from(error: CacheError) -> Self {
        Self { error, retry_after: Duration::ZERO }
    }
}
