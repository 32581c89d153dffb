//! The counts of each provider. Providers are named by the configuration, so the number of series is bounded.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use super::{
    counter::{Counter, Histogram, seconds},
    exposition::Exposition,
    families,
    run::{RunOutcome, RunReason},
};

/// How long a plugin or a caller may take: from the time of a hit to that of a login.
const SECONDS: [f64; 12] = [0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0];

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
    waited: Histogram<12>,
    /// Requests that waited and got none, and how long.
    failed: Histogram<12>,
    /// Microseconds that plugins would have run for the requests that were answered from memory.
    saved: Counter,
    runs: Mutex<BTreeMap<(RunReason, RunOutcome), u64>>,
    run_time: Histogram<12>,
    queue_time: Histogram<12>,
}

impl Default for ProviderMetrics {
    fn default() -> Self {
        let histogram = || Histogram::new(&SECONDS);
        Self {
            served: Counter::default(),
            waited: histogram(),
            failed: histogram(),
            saved: Counter::default(),
            runs: Mutex::default(),
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
        *self.runs().entry((reason, outcome)).or_default() += 1;
        queued.inspect(|time| self.queue_time.observe(*time));
        ran.inspect(|time| self.run_time.observe(*time));
    }

    fn runs(&self) -> MutexGuard<'_, BTreeMap<(RunReason, RunOutcome), u64>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn refreshes(&self, is_success: bool) -> u64 {
        let runs = self.runs();
        let counted = runs
            .iter()
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
        let all: Vec<_> =
            self.table().iter().map(|(name, counts)| (Arc::clone(name), Arc::clone(counts))).collect();
        to.family(&families::OBTENTIONS);
        for (name, counts) in &all {
            let count = |result, count| (vec![("provider", &**name), ("result", result)], count);
            for (labels, value) in [
                count("memory", counts.served.get()),
                count("run", counts.waited.observed(0).count),
                count("failed", counts.failed.observed(0).count),
            ] {
                to.sample(&labels, value);
            }
        }
        to.family(&families::OBTENTION_TIME);
        for (name, counts) in &all {
            let (served, failed) = (counts.waited.observed(counts.served.get()), counts.failed.observed(0));
            to.histogram(&[("provider", name), ("result", "success")], &served);
            to.histogram(&[("provider", name), ("result", "failure")], &failed);
        }
        to.family(&families::RUNS);
        for (name, counts) in &all {
            for ((reason, outcome), count) in &*counts.runs() {
                let labels = [("provider", &**name), ("reason", reason.name()), ("outcome", outcome.name())];
                to.sample(&labels, *count);
            }
        }
        to.family(&families::RUN_TIME);
        for (name, counts) in &all {
            to.histogram(&[("provider", name)], &counts.run_time.observed(0));
        }
        to.family(&families::QUEUE_TIME);
        for (name, counts) in &all {
            to.histogram(&[("provider", name)], &counts.queue_time.observed(0));
        }
        to.family(&families::REFRESHES);
        for (name, counts) in &all {
            to.sample(&[("provider", name), ("result", "success")], counts.refreshes(true));
            to.sample(&[("provider", name), ("result", "failure")], counts.refreshes(false));
        }
        to.family(&families::SAVED);
        for (name, counts) in &all {
            to.value(&[("provider", name)], seconds(counts.saved.get()));
        }
    }
}
