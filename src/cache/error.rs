//! Why a credential is not served.

use std::{fmt, sync::Arc, time::Duration};

use crate::{
    credential::LifetimeError,
    exec::{RunError, WaitsFor},
};

/// Callers that may wait for plugin runs at a time.
pub(crate) const WAITING: usize = 4096;

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
    /// The caller's deadline came before the end of the run, which goes on.
    #[error("{0}; ask again, the run goes on")]
    Pending(Pending),
    /// The run gave no credential.
    #[error(transparent)]
    Run(#[from] RunError),
    /// Too many callers wait for runs.
    #[error("{WAITING} requests wait for plugin runs, which is the limit; ask again later")]
    TooManyWaiting,
}

/// What a caller waited for when its deadline came.
#[derive(Clone, Debug)]
pub enum Pending {
    /// The run waits for its turn; for what, if that is known.
    Queued(Option<WaitsFor>),
    /// The plugin has been running for this time.
    Running(Duration),
}

impl fmt::Display for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Queued(Some(waits_for)) => write!(f, "the plugin run waits for its turn: {waits_for}"),
            Self::Queued(None) => f.write_str("the plugin run is about to start"),
            Self::Running(time) => write!(f, "the plugin has been running for {} s", time.as_secs()),
        }
    }
}

impl CacheError {
    /// How long the issuer wants no runs, if that is why there was none.
    pub(crate) fn pause(&self) -> Option<Duration> {
        match self {
            Self::Run(RunError::Throttled { retry_after, .. }) => Some(*retry_after),
            _ => None,
        }
    }
}

/// A failure, and when it is worth asking again.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{error}")]
pub struct Failed {
    /// What went wrong.
    pub error: CacheError,
    /// How long the failure is held: an earlier request gets it again, without a run.
    pub retry_after: Duration,
}

/// One that is not held.
impl From<CacheError> for Failed {
    fn from(error: CacheError) -> Self {
        Self { error, retry_after: Duration::ZERO }
    }
}
