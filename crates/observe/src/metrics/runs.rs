//! Plugin runs: of all providers as client-go counts them, and of each provider by their reason and outcome.
//!
//! The names of client-go are for dashboards that exist, and from `k8s.io/component-base/metrics/prometheus/restclient`; their
//! meaning is in `k8s.io/client-go/plugin/pkg/client/auth/exec/metrics.go`. The configuration bounds the number of series.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use prometheus_client::metrics::counter::Counter;

use super::{
    counter::{self, Counts, Histogram, add_one, seconds},
    exposition::{ConstGauge, Exposition, FAILURE, SUCCESS, families},
};

/// client-go's buckets in seconds: from ten minutes to four years.
const AGES: [f64; 11] =
    [600.0, 1.8e3, 3.6e3, 1.44e4, 8.64e4, 6.048e5, 2.592e6, 7.776e6, 1.5552e7, 3.1104e7, 1.244_16e8];

named! {
    /// client-go's label `call_status`.
    CallStatus {
        /// The process ended with exit code 0. Its output may still be invalid.
        NoError = "no_error",
        /// It ended with another exit code, or by a signal.
        PluginExecutionError = "plugin_execution_error",
        /// There is no such program.
        PluginNotFoundError = "plugin_not_found_error",
        /// Everything else.
        ClientInternalError = "client_internal_error",
    }
}

/// The calls of all plugins, the checks of the plugin policy before them, and the age of the certificates that were
/// replaced.
#[derive(Debug)]
pub struct Calls {
    ended: Counts<(i32, CallStatus)>,
    allowed: Counter,
    denied: Counter,
    ages: Histogram,
}

impl Default for Calls {
    fn default() -> Self {
        Self {
            ended: Counts::default(),
            allowed: Counter::default(),
            denied: Counter::default(),
            ages: Histogram::new(&AGES),
        }
    }
}

impl Calls {
    /// A plugin was called. `code` is its exit code; -1 for a signal, 1 if it did not start.
    pub fn called(&self, code: i32, status: CallStatus) {
        add_one(&self.ended, (code, status));
    }

    /// The policy was asked whether a plugin may run.
    pub fn checked(&self, is_allowed: bool) {
        if is_allowed { &self.allowed } else { &self.denied }.inc();
    }

    /// A certificate was replaced `age` after its `NotBefore`.
    pub fn replaced(&self, age: Duration) {
        self.ages.observe(age);
    }

    /// Writes client-go's families. `left` is the number of seconds until the first certificate expires, infinite without
    /// certificates.
    pub fn write(&self, to: &mut Exposition, left: f64) {
        let ended: Vec<_> = counter::all(&self.ended)
            .map(|((code, status), count)| (code.to_string(), status.name(), count))
            .collect();
        let ended = ended.iter().map(|(code, status, count)| ([code.as_str(), *status], *count));
        to.numbers(&families::CALLS, ended);
        let checks = [(["allowed"], self.allowed.get()), (["denied"], self.denied.get())];
        to.numbers(&families::POLICY_CALLS, checks);
        to.one(&families::CERTIFICATE_TTL, ConstGauge::new(left));
        to.one(&families::ROTATION_AGE, self.ages.observed(0));
    }
}

/// The counts of all providers.
#[derive(Debug, Default)]
pub struct ProviderTable {
    by_name: Mutex<BTreeMap<Arc<str>, Arc<ProviderMetrics>>>,
}

/// The counts of one provider.
#[derive(Debug, Default)]
pub struct ProviderMetrics {
    served: Counter,
    /// Requests that waited and got a credential, and those that got none.
    waited: Histogram,
    failed: Histogram,
    /// Microseconds that plugins would have run for the requests that were answered from memory.
    saved: Counter,
    runs: Counts<(RunReason, RunOutcome)>,
    run_time: Histogram,
    queue_time: Histogram,
}

impl ProviderMetrics {
    /// A request was answered from memory with a credential whose plugin ran for `micros`.
    pub fn served(&self, micros: u64) {
        self.served.inc();
        self.saved.inc_by(micros);
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
        add_one(&self.runs, (reason, outcome));
        queued.inspect(|time| self.queue_time.observe(*time));
        ran.inspect(|time| self.run_time.observe(*time));
    }

    fn refreshes(&self, is_success: bool) -> u64 {
        let counted = counter::all(&self.runs)
            .filter(|((reason, outcome), _)| reason.is_refresh() && outcome.is_success() == Some(is_success));
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
        let all = self.table().clone();
        let all: Vec<(&str, &ProviderMetrics)> =
            all.iter().map(|(name, counts)| (&**name, &**counts)).collect();
        let all = || all.iter().copied();
        let requests = all().flat_map(|(name, counts)| {
            let (run, failed) = (counts.waited.observed(0).count(), counts.failed.observed(0).count());
            [
                ([name, "memory", SUCCESS], counts.served.get()),
                ([name, "plugin", SUCCESS], run),
                ([name, "none", FAILURE], failed),
            ]
        });
        to.numbers(&families::CREDENTIAL_REQUESTS, requests);
        let times = all().flat_map(|(name, counts)| {
            let served = counts.waited.observed(counts.served.get());
            [([name, SUCCESS], served), ([name, FAILURE], counts.failed.observed(0))]
        });
        to.all(&families::CREDENTIAL_TIME, times);
        let runs = all().flat_map(|(name, counts)| {
            let runs = counter::all(&counts.runs);
            runs.map(move |((reason, outcome), count)| ([name, reason.name(), outcome.name()], count))
        });
        to.numbers(&families::RUNS, runs);
        to.all(&families::RUN_TIME, all().map(|(name, counts)| ([name], counts.run_time.observed(0))));
        to.all(&families::QUEUE_TIME, all().map(|(name, counts)| ([name], counts.queue_time.observed(0))));
        let refreshes = all().flat_map(|(name, counts)| {
            [([name, SUCCESS], counts.refreshes(true)), ([name, FAILURE], counts.refreshes(false))]
        });
        to.numbers(&families::REFRESHES, refreshes);
        let saved = |counts: &ProviderMetrics| ConstGauge::new(seconds(counts.saved.get()));
        to.all(&families::SAVED, all().map(|(name, counts)| ([name], saved(counts))));
    }
}

named! {
    /// Why a plugin runs. The names are label values and appear in the log: they must not change.
    RunReason {
        /// The broker has had no credential for this key yet.
        First = "first",
        /// The last run failed, and no credential is valid.
        Retry = "retry",
        /// The credential has expired.
        Expired = "expired",
        /// The credential is valid and due for refresh.
        Refresh = "refresh",
        /// The credential is valid, and the file of the plugin has changed.
        PluginChanged = "plugin_changed",
        /// The credential is fetched before a caller asks for it.
        Prewarm = "prewarm",
        /// The credential is valid, and does not live as long as a caller needs.
        MinLifetime = "min_lifetime",
        /// The credential was rejected by an API server, or seems to be.
        Rejected = "rejected",
        /// A user asked for the run.
        Requested = "requested",
    }
}

named! {
    /// How a run ended. The names must not change either.
    RunOutcome {
        /// It returned another credential than the one that was held, or the first one.
        Rotated = "rotated",
        /// It returned the same credential with another expiry.
        Extended = "extended",
        /// It returned the same credential.
        Unchanged = "unchanged",
        /// Its exit code was not 0.
        Exit = "exit",
        /// A signal ended it.
        Signal = "signal",
        /// It took longer than the provider allows.
        Timeout = "timeout",
        /// It printed too much.
        OutputTooLarge = "output_too_large",
        /// It did not print a valid `ExecCredential`.
        InvalidOutput = "invalid_output",
        /// The credential had expired when it arrived.
        ExpiredOutput = "expired_output",
        /// The plugin is not installed.
        NotFound = "not_found",
        /// The broker could not start it.
        NotStarted = "not_started",
        /// It needs a terminal.
        InteractionRequired = "interaction_required",
        /// It asked the broker for the credential that it must provide.
        Recursion = "recursion",
        /// The policy does not allow the plugin.
        PolicyDenied = "policy_denied",
        /// It did not start, because its issuer is paused.
        Throttled = "throttled",
        /// It ended without an outcome: no caller needed it, or the broker stopped.
        Cancelled = "cancelled",
        /// A defect of the broker ended it.
        Panicked = "panicked",
    }
}

impl RunReason {
    /// Whether the run refreshes a credential that is still valid, because of its age.
    const fn is_refresh(self) -> bool {
        matches!(self, Self::Refresh | Self::PluginChanged)
    }
}

impl RunOutcome {
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
