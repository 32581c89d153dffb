//! Writes all metrics: those that were counted, and those that are read from the cache and the fleet.

use std::{collections::BTreeMap, sync::Arc, time::SystemTime};

use super::{broker::Broker, health::ProviderChecks};
use credbroker_cache::ProviderSummary;
use credbroker_observe::{
    clock::{Clock as _, SystemClock},
    metrics::{ConstGauge, Exposition, families},
};
use credbroker_runner::PluginRunner;

/// All metrics of `broker`, or those without the names of providers.
pub(super) async fn exposition<R: PluginRunner>(broker: &Broker<R>, with_names: bool) -> String {
    let (checks, summaries) = broker.provider_checks(None).await;
    let (metrics, configuration) = (&broker.metrics, Arc::clone(&broker.configuration.borrow()));
    let certificates = summaries.values().filter_map(|summary| summary.certificate);
    let mut to = Exposition::default();
    metrics.calls.write(&mut to, until(certificates.min(), SystemClock.now().wall));
    // A provider that a reload removed leaves no series.
    metrics.providers.retain(|name| checks.contains_key(name) || summaries.contains_key(name));
    if with_names {
        metrics.providers.write(&mut to);
    }
    metrics.requests.write(&mut to);
    if with_names {
        write_providers(&checks, &summaries, &mut to);
    }
    let reloads = [(["success"], configuration.reloads), (["failure"], configuration.failures)];
    to.numbers(&families::RELOADS, reloads);
    to.one(&families::CONFIGURATION, number(configuration.failure.is_none()));
    if let Some(fleet) = broker.resolver.fleet() {
        let hub = fleet.hub();
        to.one(&families::HUB, number(hub.synced && hub.problem.is_none()));
        to.one(&families::PROFILES, number(fleet.list(None).len() as u64));
    }
    let started = broker.started.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    to.one(&families::START, ConstGauge::new(started.as_secs_f64()));
    let commit = option_env!("CREDBROKER_COMMIT").unwrap_or_default();
    to.numbers(&families::BUILD, [([env!("CARGO_PKG_VERSION"), commit], 1)]);
    to.into_text()
}

/// Writes what is read of each provider.
fn write_providers(
    checks: &ProviderChecks,
    summaries: &BTreeMap<Arc<str>, ProviderSummary>,
    to: &mut Exposition,
) {
    let summaries = || summaries.iter().map(|(name, summary)| (&**name, summary));
    let entries = summaries().flat_map(|(name, summary)| {
        summary.keys.iter().map(move |(state, count)| ([name, state.name()], *count))
    });
    to.numbers(&families::ENTRIES, entries);
    let expiries = summaries()
        .filter_map(|(name, summary)| Some(([name], ConstGauge::new(summary.expires_in?.as_secs_f64()))));
    to.all(&families::EXPIRY, expiries);
    to.numbers(&families::WATCHERS, summaries().map(|(name, summary)| ([name], summary.watchers)));
    to.numbers(&families::READY, checks.iter().map(|(name, reason)| ([&**name], reason.is_none().into())));
}

fn number(value: impl Into<u64>) -> ConstGauge<u64> {
    ConstGauge::new(value.into())
}

/// Seconds from `now` to `time`, negative if it has passed; infinite without a time.
fn until(time: Option<SystemTime>, now: SystemTime) -> f64 {
    let Some(time) = time else { return f64::INFINITY };
    match time.duration_since(now) {
        Ok(left) => left.as_secs_f64(),
        Err(passed) => -passed.duration().as_secs_f64(),
    }
}
