//! Counts the answers, warns about requests that are denied, and writes all metrics: those that were counted, and those that
//! are read from the cache and the fleet.

use std::{sync::Arc, time::SystemTime};

use credbroker_proto::Reason;
use http::HeaderMap;
use tonic::{Code, Status};
use tracing::warn;

use super::broker::Broker;
use credbroker_observe::{
    clock::{Clock as _, SystemClock},
    metrics::{ConstGauge, Exposition, FAILURE, Metrics, Rpc, SUCCESS, families, write_process},
    trace,
};
use credbroker_runner::PluginRunner;
use credbroker_uds_server::Peer;

/// The names of gRPC's codes, from 0 on, for errors that the broker did not make itself.
const CODES: &str = "OK CANCELLED UNKNOWN INVALID_ARGUMENT DEADLINE_EXCEEDED NOT_FOUND ALREADY_EXISTS PERMISSION_DENIED \
    RESOURCE_EXHAUSTED FAILED_PRECONDITION ABORTED OUT_OF_RANGE UNIMPLEMENTED INTERNAL UNAVAILABLE DATA_LOSS UNAUTHENTICATED";

/// Counts an answer of `rpc` by its headers. An answer without a status is a message, or a stream that begins.
pub(super) fn count_answer(metrics: &Metrics, rpc: Rpc, peer: &Peer, headers: &HeaderMap) {
    let Some(status) = Status::from_header_map(headers).filter(|status| status.code() != Code::Ok) else {
        return answered(metrics, rpc);
    };
    let result = result(&status);
    trace::answered(result);
    let is_denied = status.code() == Code::PermissionDenied;
    metrics.requests.failed(rpc, result, is_denied);
    if is_denied && let Some(others) = metrics.denied.admit((peer.uid, result), SystemClock.now().boot) {
        let message = status.message();
        warn!(uid = peer.uid, pid = peer.pid, rpc = %rpc.name(), reason = %result, others, "request denied: {message}");
    }
}

pub(super) fn answered(metrics: &Metrics, rpc: Rpc) {
    trace::answered("OK");
    metrics.requests.answered(rpc);
}

/// The stable reason, with which every message of ours ends, or the name of the code.
fn result(status: &Status) -> &'static str {
    let name = status.message().rsplit_once('(').and_then(|(_, end)| end.strip_suffix(')'));
    let code = || CODES.split(' ').nth(usize::try_from(i32::from(status.code())).ok()?);
    name.and_then(Reason::from_name).map(Reason::name).or_else(code).unwrap_or("UNKNOWN")
}

/// Writes all metrics of `broker`, or those without the names of providers.
pub(super) async fn write<R: PluginRunner>(broker: &Broker<R>, with_names: bool, to: &mut Exposition) {
    let (checks, summaries) = broker.provider_checks(None).await;
    let (metrics, configuration) = (&broker.metrics, Arc::clone(&broker.configuration.borrow()));
    let certificates = summaries.values().filter_map(|summary| summary.certificate);
    metrics.calls.write(to, until(certificates.min(), SystemClock.now().wall));
    // A provider that a reload removed leaves no series.
    metrics.providers.retain(|name| checks.contains_key(name) || summaries.contains_key(name));
    if with_names {
        metrics.providers.write(to);
    }
    metrics.requests.write(to);
    if with_names {
        let summaries = || summaries.iter().map(|(name, summary)| (&**name, summary));
        let credentials = summaries().flat_map(|(name, summary)| {
            summary.keys.iter().map(move |(state, count)| ([name, state.name()], *count))
        });
        to.numbers(&families::CREDENTIALS, credentials);
        let expirations =
            summaries().filter_map(|(name, summary)| Some(([name], timestamp(summary.expires_at?))));
        to.all(&families::EXPIRATION, expirations);
        to.numbers(&families::WATCHES, summaries().map(|(name, summary)| ([name], summary.watchers)));
        let ready = checks.iter().map(|(name, reason)| ([&**name], reason.is_none().into()));
        to.numbers(&families::READY, ready);
    }
    let reloads = [([SUCCESS], configuration.reloads), ([FAILURE], configuration.failures)];
    to.numbers(&families::RELOADS, reloads);
    to.one(&families::CONFIGURATION, number(configuration.problems.is_empty()));
    if let Some(fleet) = broker.resolver.fleet() {
        let hub = fleet.hub();
        to.one(&families::HUB, number(hub.synced && hub.problem.is_none()));
        if let Some(since) = hub.since {
            to.one(&families::HUB_SINCE, timestamp(since));
        }
        to.one(&families::PROFILES, number(fleet.list(None).len() as u64));
    }
}

/// Writes the metrics that every process has.
pub(super) fn write_own(started: SystemTime, to: &mut Exposition) {
    to.one(&families::START, timestamp(started));
    let commit = option_env!("CREDBROKER_COMMIT").unwrap_or_default();
    to.numbers(&families::BUILD, [([env!("CARGO_PKG_VERSION"), commit], 1)]);
    write_process(to);
}

fn number(value: impl Into<u64>) -> ConstGauge<u64> {
    ConstGauge::new(value.into())
}

/// Seconds since 1970.
fn timestamp(time: SystemTime) -> ConstGauge<f64> {
    ConstGauge::new(time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64())
}

/// Seconds from `now` to `time`, negative if it has passed; infinite without a time.
fn until(time: Option<SystemTime>, now: SystemTime) -> f64 {
    let Some(time) = time else { return f64::INFINITY };
    match time.duration_since(now) {
        Ok(left) => left.as_secs_f64(),
        Err(passed) => -passed.duration().as_secs_f64(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status;

    #[test]
    fn every_answer_is_counted_once_by_its_reason() {
        let metrics = Metrics::default();
        let peer = Peer { uid: 1001, gid: 1, pid: None, listener: 0 };
        for status in [
            Status::ok(""),
            status::peer_denied(1001, status::STRANGER),
            status::peer_denied(1001, status::STRANGER),
            status::draining(),
            Status::unimplemented("made up (PEER_DENIED) "),
            Status::permission_denied("(SOMETHING_ELSE)"),
        ] {
            let response = status.into_http::<tonic::body::Body>();
            count_answer(&metrics, Rpc::GET, &peer, response.headers());
        }
        count_answer(&metrics, Rpc::of("/other"), &peer, &HeaderMap::new());
        let mut text = Exposition::default();
        metrics.requests.write(&mut text);
        insta::assert_snapshot!(text.into_text());
    }
}
