//! Why a credential is not served.

use std::{fmt, sync::Arc, time::Duration};

use super::{attention::Unattended, waiting};
use crate::{
    credential::LifetimeError,
    exec::{RunError, WaitsFor},
    plugin::Retirement,
};

/// Why there is no credential. Cheap to clone: all callers that wait for a run share it.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CacheError {
    /// The broker is shutting down.
    #[error("the broker is shutting down; try again, its successor will answer")]
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

/// The limit that leaves no room for another key.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Room {
    /// `limits.entries`.
    #[error(
        "the broker holds as many credentials as `limits.entries` allows ({limit}), all in use; raise it"
    )]
    Entries {
        /// `limits.entries`.
        limit: usize,
    },
    /// `limits.entriesPerProcess`.
    #[error(
        "this process waits for and watches as many credentials that its variables select as `limits.entriesPerProcess` allows ({limit}); end some watches"
    )]
    OfProcess {
        /// `limits.entriesPerProcess`.
        limit: usize,
    },
    /// `limits.entriesPerUid`.
    #[error(
        "the processes of this uid wait for and watch as many credentials that their variables select as `limits.entriesPerUid` allows ({limit}); end some watches"
    )]
    OfUid {
        /// `limits.entriesPerUid`.
        limit: usize,
    },
    /// `limits.bytesPerProcess`.
    #[error(
        "the variables and clusters of this process exceed {limit} bytes (`limits.bytesPerProcess`); send less, or end some watches"
    )]
    BytesOfProcess {
        /// `limits.bytesPerProcess`.
        limit: usize,
    },
    /// `limits.bytesPerUid`.
    #[error(
        "the variables and clusters of the processes of this uid exceed {limit} bytes (`limits.bytesPerUid`); send less, or end some watches"
    )]
    BytesOfUid {
        /// `limits.bytesPerUid`.
        limit: usize,
    },
}

impl Room {
    /// The key of the configuration.
    pub fn key(&self) -> &'static str {
        match self {
            Self::Entries { .. } => "limits.entries",
            Self::OfProcess { .. } => "limits.entriesPerProcess",
            Self::OfUid { .. } => "limits.entriesPerUid",
            Self::BytesOfProcess { .. } => "limits.bytesPerProcess",
            Self::BytesOfUid { .. } => "limits.bytesPerUid",
        }
    }
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
        Retirement::Changed => "its configuration changed meanwhile; try again, the new one is in use",
        Retirement::Removed => "it was removed from the configuration meanwhile",
    }
}

impl CacheError {
    /// How long the issuer is paused, if that is the cause.
    pub(crate) fn pause(&self) -> Option<Duration> {
        match self {
            Self::Run(RunError::Throttled { retry_after, .. }) => Some(*retry_after),
            _ => None,
        }
    }

    /// Whether the plugin tried to use a terminal, which it did not have.
    pub(crate) fn needs_terminal(&self) -> bool {
        matches!(
            self,
            Self::Run(RunError::NeedsTerminal { .. }) | Self::Unattended(Unattended::NeedsTerminal)
        )
    }

    /// The same error when `time` has passed: a pause is shorter by then.
    pub(crate) fn after(&self, time: Duration) -> Self {
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
