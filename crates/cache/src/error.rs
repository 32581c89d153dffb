//! Why a credential is not served, and when to try again.

use std::{sync::Arc, time::Duration};

use super::{
    prompts::{Asker, Unattended},
    rejection::{Callers, PAUSE},
};
use credbroker_credential::{LifetimeError, Now};
use credbroker_observe::clock::full_jitter;
use credbroker_plugin::{PluginSpec, Retirement};
use credbroker_runner::{PROBE_EVERY, RunError, RunErrorKind};

/// The longest time for which a caller gets one of the first failures again, without a run.
const HELD: Duration = Duration::from_secs(3);
/// The longest time for which a caller gets any failure again.
const HELD_LONGEST: Duration = Duration::from_secs(30);

/// Why there is no credential. Cheap to clone: all callers that wait for a run share it.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CacheError {
    /// The broker is shutting down.
    #[error("the broker is shutting down; try again when the next broker runs")]
    Draining,
    /// The credential that a watch returned last was evicted, or is of an account that its files no longer select.
    #[error("the broker has evicted the credential; try again to get the next one")]
    Evicted,
    /// There is no room for another key, and none gives way.
    #[error("{0}")]
    Full(Full),
    /// The plugin's credential had expired when it arrived, or is not valid yet.
    #[error("plugin `{}` printed {}", .0, .1.found())]
    Lifetime(Arc<str>, #[source] LifetimeError),
    /// The caller's deadline passed before the end of the run, which continues.
    #[error("{0}; try again, the run continues")]
    Pending(String),
    /// The provider is no longer active.
    #[error("{}", retired(*.0))]
    Retired(Retirement),
    /// The run brought no credential.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The plugin needs a user, and there is none.
    #[error(transparent)]
    Unattended(Unattended),
}

/// The bound that leaves no room for another key.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Full {
    /// `limits.credentials`.
    #[error(
        "the broker holds {0} credentials, which is the limit (`limits.credentials`), and all are in use; raise the limit"
    )]
    Entries(usize),
    /// `limits.credentialBytes`.
    #[error(
        "the credentials that the broker holds, and what selects them, have {0} bytes, which is the limit (`limits.credentialBytes`), and all are in use; raise the limit"
    )]
    Bytes(usize),
}

impl Full {
    /// The key of the configuration.
    pub fn key(&self) -> &'static str {
        match self {
            Self::Entries(_) => "limits.credentials",
            Self::Bytes(_) => "limits.credentialBytes",
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
    /// How long its issuer is paused, or only its key (`true`), if that is the cause.
    pub(crate) fn pause(&self) -> Option<(Duration, bool)> {
        match self {
            Self::Run(RunError { kind: RunErrorKind::Throttled { of_key, retry_after, .. }, .. }) => {
                Some((*retry_after, *of_key))
            }
            _ => None,
        }
    }

    /// Whether the plugin tried to use a terminal, which it did not have.
    pub fn needs_terminal(&self) -> bool {
        matches!(
            self,
            Self::Run(RunError { kind: RunErrorKind::NeedsTerminal, .. })
                | Self::Unattended(Unattended::NeedsTerminal)
        )
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
    /// A user took part in the run that failed, and only a user can repeat it.
    pub is_interactive: bool,
}

/// A failure that is not held.
impl From<CacheError> for Failed {
    fn from(error: CacheError) -> Self {
        Self { error, retry_after: Duration::ZERO, is_interactive: false }
    }
}

impl Failed {
    /// The issuer of `spec` is paused for this time.
    pub(crate) fn paused(spec: &PluginSpec, retry_after: Duration) -> Self {
        let error = CacheError::from(RunError::throttled(spec, false, retry_after));
        Self { retry_after, ..error.into() }
    }
}

/// Why the last run brought no credential. Times are since boot: a step of the wall clock must not extend them.
#[derive(Debug)]
pub(crate) struct Failure {
    pub error: CacheError,
    pub failed_at: Duration,
    /// Failures in a row.
    pub attempts: u32,
    /// Throttled runs since the last credential.
    pub throttled: u32,
    /// No refresh starts before this time.
    pub refresh_at: Duration,
    /// A caller gets the failure again before this time.
    pub ask_at: Duration,
    /// As in [`Failed`].
    pub is_interactive: bool,
    /// The callers at terminals that have received it.
    pub notified: Callers,
}

impl Failure {
    /// What a caller gets at `now`: a pause is shorter by then.
    pub(crate) fn at(&self, now: Now, at_terminal: bool) -> Failed {
        let held = if at_terminal { Duration::ZERO } else { self.ask_at.saturating_sub(now.boot) };
        let (mut error, mut left) = (self.error.clone(), held);
        if let CacheError::Run(RunError { kind: RunErrorKind::Throttled { retry_after, .. }, .. }) =
            &mut error
        {
            *retry_after = retry_after.saturating_sub(now.boot.saturating_sub(self.failed_at));
            left = *retry_after;
        }
        Failed { error, retry_after: left, is_interactive: self.is_interactive }
    }

    pub(crate) fn is_held(&self, now: Now) -> bool {
        now.boot < self.ask_at
    }

    /// Whether it is the answer to `asker` at `now`. A user who asks again at a terminal may have removed the cause. But a program
    /// that runs its plugin again asks for the same command.
    pub(crate) fn answers(&self, asker: Asker, now: Now) -> bool {
        match asker {
            Asker::Person { caller, .. } if self.error.pause().is_none() => {
                now.boot < self.failed_at.saturating_add(PAUSE) && self.notified.has(caller)
            }
            _ => self.is_held(now),
        }
    }

    /// The failure that follows `last`. A pause is not an attempt. Only that of the key is held here: the scheduler knows when
    /// that of the issuer ends. If the key `holds` a valid credential, its refresh is tried as often as a paused issuer.
    pub(crate) fn after(last: Option<&Self>, error: CacheError, holds: bool, now: Now, u: f64) -> Self {
        let (mut attempts, mut throttled) = last.map_or((0, 0), |last| (last.attempts, last.throttled));
        let until = |held: Duration| now.boot.saturating_add(held);
        let [refresh_at, ask_at] = if let Some((pause, of_key)) = error.pause() {
            throttled = throttled.saturating_add(u32::from(of_key));
            let at = if of_key { until(pause) } else { now.boot };
            [if holds { at.min(until(PROBE_EVERY)) } else { at }, at]
        } else {
            attempts = attempts.saturating_add(1);
            let back_off = back_off(attempts, u);
            [back_off, hold(attempts, back_off)].map(until)
        };
        let (failed_at, is_interactive, notified) = (now.boot, false, Callers::default());
        Self { error, failed_at, attempts, throttled, refresh_at, ask_at, is_interactive, notified }
    }
}

/// How long no refresh starts after so many failures in a row: full jitter up to 2 s, 4 s, 8 s … 60 s, at least one second.
pub(crate) fn back_off(attempts: u32, u: f64) -> Duration {
    full_jitter(attempts, Duration::from_secs(2), Duration::from_secs(60), u).max(Duration::from_secs(1))
}

/// How long a caller without a terminal gets the same failure again without a run. The time is short, so that a login takes
/// effect immediately, and longer from the sixth failure on, so that a wrong password does not lock the account.
fn hold(attempts: u32, back_off: Duration) -> Duration {
    let doubled = HELD * 2_u32.saturating_pow(attempts.saturating_sub(5).min(8));
    if attempts <= 5 { back_off.min(HELD) } else { doubled.min(HELD_LONGEST) }
}
