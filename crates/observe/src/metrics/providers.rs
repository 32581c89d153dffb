//! The counts of each provider, and of its plugin runs by their reason and outcome.
//!
//! Providers are named by the configuration, so the number of series is bounded.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use super::{
    counter::{Counter, Counts, Histogram, seconds},
    exposition::{Exposition, families},
};

/// How long a plugin or a caller may take: from the time of a hit to that of a login.
const SECONDS: [f64; 12] = [0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0];

/// Writes the samples of one provider, which its label names.
type WriteOne = dyn Fn(&mut Exposition, (&str, &str), &ProviderMetrics);

/// The counts of all providers.
#[derive(Debug, Default)]
pub struct ProviderTable {
    by_name: Mutex<BTreeMap<Arc<str>, Arc<ProviderMetrics>>>,
}

/// The counts of one provider.
#[derive(Debug)]
pub struct ProviderMetrics {
    /// Requests that were answered from memory.
    served: Counter,
    /// Requests that waited and got a credential, and how long.
    waited: Histogram,
    /// Requests that waited and got none, and how long.
    failed: Histogram,
    /// Microseconds that plugins would have run for the requests that were answered from memory.
    saved: Counter,
    runs: Counts<(RunReason, RunOutcome)>,
    run_time: Histogram,
    queue_time: Histogram,
}

impl Default for ProviderMetrics {
    fn default() -> Self {
        let histogram = || Histogram::new(&SECONDS);
        Self {
            served: Counter::default(),
            waited: histogram(),
            failed: histogram(),
            saved: Counter::default(),
            runs: Counts::default(),
            run_time: histogram(),
            queue_time: histogram(),
        }
    }
}

impl ProviderMetrics {
    /// A request was answered from memory with a credential whose plugin ran for `micros`.
    pub fn served(&self, micros: u64) {
        self.served.add_one();
        self.saved.add(micros);
    }

    /// A request waited for `time`, and got a credential or an error.
    pub fn answered(&self, is_success: bool, time: Duration) {
        if is_success { &self.waited } else { &self.failed }.observe(time);
    }

    /// A run ended. `queued`: how long it waited; `ran`: how long its plugin ran. `None`: it did not start.
    pub fn ran(
        &self,
        reason: RunReason,
        outcome: RunOutcome,
        queued: Option<Duration>,
        ran: Option<Duration>,
    ) {
        self.runs.add_one((reason, outcome));
        queued.inspect(|time| self.queue_time.observe(*time));
        ran.inspect(|time| self.run_time.observe(*time));
    }

    fn refreshes(&self, is_success: bool) -> u64 {
        let counted =
            self.runs.all().into_iter().filter(|((reason, outcome), _)| {
                reason.is_refresh() && outcome.is_success() == Some(is_success)
            });
        counted.map(|(_, count)| count).sum()
    }
}

impl ProviderTable {
    /// The counts of the provider `name`.
    pub fn of(&self, name: &Arc<str>) -> Arc<ProviderMetrics> {
        Arc::clone(self.table().entry(Arc::clone(name)).or_default())
    }

    /// Forgets the counts of providers that the configuration no longer has.
    pub fn retain(&self, is_configured: impl Fn(&str) -> bool) {
        self.table().retain(|name, _| is_configured(name));
    }

    fn table(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, Arc<ProviderMetrics>>> {
        self.by_name.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the families of all providers.
    pub fn write(&self, to: &mut Exposition) {
        let all: Vec<_> =
            self.table().iter().map(|(name, counts)| (Arc::clone(name), Arc::clone(counts))).collect();
        let mut family = |family, write: &WriteOne| {
            to.family(family);
            for (name, counts) in &all {
                write(to, ("provider", name), counts);
            }
        };
        family(&families::OBTENTIONS, &|to, provider, counts| {
            to.sample(&[provider, ("result", "memory")], counts.served.get());
            to.sample(&[provider, ("result", "run")], counts.waited.observed(0).count);
            to.sample(&[provider, ("result", "failed")], counts.failed.observed(0).count);
        });
        family(&families::OBTENTION_TIME, &|to, provider, counts| {
            let served = counts.waited.observed(counts.served.get());
            to.histogram(&[provider, ("result", "success")], &served);
            to.histogram(&[provider, ("result", "failure")], &counts.failed.observed(0));
        });
        family(&families::RUNS, &|to, provider, counts| {
            for ((reason, outcome), count) in counts.runs.all() {
                to.sample(&[provider, ("reason", reason.name()), ("outcome", outcome.name())], count);
            }
        });
        family(&families::RUN_TIME, &|to, provider, counts| {
            to.histogram(&[provider], &counts.run_time.observed(0));
        });
        family(&families::QUEUE_TIME, &|to, provider, counts| {
            to.histogram(&[provider], &counts.queue_time.observed(0));
        });
        family(&families::REFRESHES, &|to, provider, counts| {
            to.sample(&[provider, ("result", "success")], counts.refreshes(true));
            to.sample(&[provider, ("result", "failure")], counts.refreshes(false));
        });
        family(&families::SAVED, &|to, provider, counts| {
            to.value(&[provider], seconds(counts.saved.get()));
        });
    }
}

/// Why a plugin runs. The names are label values and appear in the log: they must not change.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum RunReason {
    /// The broker has had no credential for this key yet.
    First,
    /// The last run failed, and no credential is valid.
    Retry,
    /// The credential has expired.
    Expired,
    /// The credential is valid and due for renewal.
    Refresh,
    /// The credential is valid, and the file of the plugin has changed.
    PluginChanged,
    /// The credential is fetched before a caller asks for it.
    Prewarm,
    /// The credential was rejected by an API server, or seems to be.
    Rejected,
    /// A person asked for the run.
    Requested,
}

/// How a run ended. The names must not change either.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum RunOutcome {
    /// It returned another credential than the one that was held, or the first one.
    Rotated,
    /// It returned the same credential with another expiry.
    Extended,
    /// It returned the same credential.
    Unchanged,
    /// Its exit code was not 0.
    Exit,
    /// A signal ended it.
    Signal,
    /// It took longer than the provider allows.
    Timeout,
    /// It printed too much.
    OutputTooLarge,
    /// It did not print a valid `ExecCredential`.
    InvalidOutput,
    /// The credential had expired when it arrived.
    ExpiredOutput,
    /// The plugin is not installed.
    NotFound,
    /// The broker could not start it.
    NotStarted,
    /// It needs a terminal.
    InteractionRequired,
    /// It asked the broker for the credential that it must provide.
    Recursion,
    /// The policy does not allow the plugin.
    PolicyDenied,
    /// It did not start, because its issuer is paused.
    Throttled,
    /// It ended without an outcome: no caller needed it, or the broker stopped.
    Cancelled,
    /// A defect of the broker ended it.
    Panicked,
}

impl RunReason {
    /// Its name in logs and labels.
    pub const fn name(self) -> &'static str {
        match self {
            Self::First => "first",
            Self::Retry => "retry",
            Self::Expired => "expired",
            Self::Refresh => "refresh",
            Self::PluginChanged => "plugin_changed",
            Self::Prewarm => "prewarm",
            Self::Rejected => "rejected",
            Self::Requested => "requested",
        }
    }

    /// Whether the run renews a credential that is still valid, because of its age.
    const fn is_refresh(self) -> bool {
        matches!(self, Self::Refresh | Self::PluginChanged)
    }
}

impl RunOutcome {
    /// Its name in logs and labels.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rotated => "rotated",
            Self::Extended => "extended",
            Self::Unchanged => "unchanged",
            Self::Exit => "exit",
            Self::Signal => "signal",
            Self::Timeout => "timeout",
            Self::OutputTooLarge => "output_too_large",
            Self::InvalidOutput => "invalid_output",
            Self::ExpiredOutput => "expired_output",
            Self::NotFound => "not_found",
            Self::NotStarted => "not_started",
            Self::InteractionRequired => "interaction_required",
            Self::Recursion => "recursion",
            Self::PolicyDenied => "policy_denied",
            Self::Throttled => "throttled",
            Self::Cancelled => "cancelled",
            Self::Panicked => "panicked",
        }
    }

    /// `Some(true)`: there is a credential. `None`: neither success nor failure, such as a run that the end of the broker
    /// cut short.
    pub const fn is_success(self) -> Option<bool> {
        match self {
            Self::Rotated | Self::Extended | Self::Unchanged => Some(true),
            Self::Cancelled | Self::Throttled => None,
            _ => Some(false),
        }
    }
}
