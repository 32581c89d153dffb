//! Writes all metrics: those that were counted, and those that are read from the cache and the fleet.

use std::{collections::BTreeMap, sync::Arc, time::SystemTime};

use super::readiness::{HealthChecks, ProviderChecks};
use credbroker_cache::ProviderSummary;
use credbroker_observe::{
    clock::{Clock as _, SystemClock},
    metrics::{Exposition, Metrics, families},
};
use credbroker_runner::PluginRunner;

/// All metrics, or those without the names of providers. The configuration is current or not, and the broker has a time
/// when it started.
pub(super) async fn exposition<R: PluginRunner>(
    metrics: &Metrics,
    readiness: &HealthChecks<R>,
    (is_current, started): (bool, SystemTime),
    with_names: bool,
) -> String {
    let (checks, summaries) = readiness.providers(None).await;
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
    to.family(&families::RELOADS);
    to.sample(&[("result", "success")], metrics.reloads.get());
    to.sample(&[("result", "failure")], metrics.failed_reloads.get());
    to.family(&families::CONFIGURATION);
    to.sample(&[], u64::from(is_current));
    if let Some(fleet) = readiness.resolver.fleet() {
        let hub = fleet.hub();
        to.family(&families::HUB);
        to.sample(&[], u64::from(hub.synced && hub.problem.is_none()));
        to.family(&families::PROFILES);
        to.sample(&[], fleet.list(None).len() as u64);
    }
    to.family(&families::START);
    let started = started.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    to.value(&[], started.as_secs_f64());
    to.family(&families::BUILD);
    let commit = option_env!("CREDBROKER_COMMIT").unwrap_or_default();
    to.sample(&[("version", env!("CARGO_PKG_VERSION")), ("commit", commit)], 1);
    to.into_text()
}

/// Writes what is read of each provider.
fn write_providers(
    checks: &ProviderChecks,
    summaries: &BTreeMap<Arc<str>, ProviderSummary>,
    to: &mut Exposition,
) {
    to.family(&families::ENTRIES);
    for (provider, summary) in summaries {
        for (state, count) in &summary.keys {
            to.sample(&[("provider", provider), ("state", state.name())], *count);
        }
    }
    to.family(&families::EXPIRY);
    for (provider, summary) in summaries {
        if let Some(left) = summary.expires_in {
            to.value(&[("provider", provider)], left.as_secs_f64());
        }
    }
    to.family(&families::WATCHERS);
    for (provider, summary) in summaries {
        to.sample(&[("provider", provider)], summary.watchers);
    }
    to.family(&families::READY);
    for (provider, reason) in checks {
        to.sample(&[("provider", provider)], u64::from(reason.is_none()));
    }
}

/// Seconds from `now` to `time`, negative if it has passed; infinite without a time.
fn until(time: Option<SystemTime>, now: SystemTime) -> f64 {
    let Some(time) = time else { return f64::INFINITY };
    match time.duration_since(now) {
        Ok(left) => left.as_secs_f64(),
        Err(passed) => -passed.duration().as_secs_f64(),
    }
}
