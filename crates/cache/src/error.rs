//! Why a credential is not served.

use std::{fmt, sync::Arc, time::Duration};

use super::{attention::Unattended, full::Room, waiting};
use credbroker_credential::LifetimeError;
use credbroker_plugin::Retirement;
use credbroker_runner::{RunError, WaitsFor};

/// Why there is no credential. Cheap to clone: all callers that wait for a run share it.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CacheError {
    /// The broker is shutting down.
    #[error("the broker is shutting down; try again when the next one runs")]
    Draining,
    /// There is no room for another key, and none gives way.
    #[error("{0}")]
    Full(Room),
    /// The plugin's credential had expired when it arrived, or is not valid yet.
    #[error("plugin `{command}` printed {}", source.found())]
    Lifetime {
        /// The plugin's executable.
        command: Arc<str>,
        /// What had expired or is not valid yet, and when.
        source: LifetimeError,
    },
    /// The caller's deadline passed before the end of the run, which continues.
    #[error("{0}; try again, the run continues")]
    Pending(Pending),
    /// The provider is no longer in force.
    #[error("{}", retired(*.0))]
    Retired(Retirement),
    /// The run brought no credential.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The plugin needs a person, and there is none.
    #[error(transparent)]
    Unattended(Unattended),
    /// Too many callers wait for runs, or too many of one process.
    #[error(
        "too many requests wait for plugin runs (the limit is {}, and a lower one for each process); try again later",
        waiting::LIMIT
    )]
    TooManyWaiting,
}

/// What a caller waited for when its deadline passed.
#[derive(Clone, Debug)]
pub enum Pending {
    /// The run is queued; for what reason, if that is known.
    Queued(Option<WaitsFor>),
    /// The plugin has been running for this time.
    Running(Duration),
}

impl fmt::Display for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Queued(Some(waits_for)) => write!(f, "the plugin run is queued: {waits_for}"),
            Self::Queued(None) => f.write_str("the plugin run is about to start"),
            Self::Running(time) => write!(f, "the plugin has been running for {} s", time.as_secs()),
        }
    }
}

fn retired(why: Retirement) -> &'static str {
    match why {
        Retirement::Changed => "its configuration has changed; try again to use the new one",
        Retirement::Removed => "it was removed from the configuration",
    }
}

impl CacheError {
    /// How long the key is paused although its issuer is not, if that is the cause.
    pub fn own_pause(&self) -> Option<Duration> {
        match self {
            Self::Run(RunError::Throttled { of_key: true, retry_after, .. }) => Some(*retry_after),
            _ => None,
        }
    }

    /// How long the issuer or the key is paused, if that is the cause.
    pub fn pause(&self) -> Option<Duration> {
        match self {
            Self::Run(RunError::Throttled { retry_after, .. }) => Some(*retry_after),
            _ => None,
        }
    }

    /// Whether the plugin tried to use a terminal, which it did not have.
    pub fn needs_terminal(&self) -> bool {
        matches!(
            self,
            Self::Run(RunError::NeedsTerminal { .. }) | Self::Unattended(Unattended::NeedsTerminal)
        )
    }

    /// The same error when `time` has passed: a pause is shorter by then.
    #[must_use]
    pub fn after(&self, time: Duration) -> Self {
        let mut error = self.clone();
        if let Self::Run(RunError::Throttled { retry_after, .. }) = &mut error {
            *retry_after = retry_after.saturating_sub(time);
        }
        error
    }
}

/// A failure, and when to try again.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{error}")]
pub struct Failed {
    /// What went wrong.
    pub error: CacheError,
    /// How long the failure is held: an earlier request gets it again without a run.
    pub retry_after: Duration,
}

/// A failure that is not held.
impl From<CacheError> for Failed {
    fn from(error: CacheError) -> Self {
        Self { error, retry_after: Duration::ZERO }
    }
}
