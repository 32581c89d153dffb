//! Counts the answers, and warns about requests that are denied.

use credbroker_proto::Reason;
use http::HeaderMap;
use tonic::{Code, Status};
use tracing::warn;

use credbroker_observe::{
    clock::{Clock as _, SystemClock},
    metrics::{Metrics, Rpc},
    trace,
};
use credbroker_uds_server::Peer;

/// The names of gRPC's codes, for errors that the broker did not make itself.
const CODES: [&str; 17] = [
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
];

/// Counts an answer of `rpc` by its headers. An answer without a status is a message, or a stream that begins.
pub(super) fn tally(metrics: &Metrics, rpc: Rpc, peer: &Peer, headers: &HeaderMap) {
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

/// Counts an answer without an error.
pub(super) fn answered(metrics: &Metrics, rpc: Rpc) {
    trace::answered("OK");
    metrics.requests.answered(rpc);
}

/// The stable reason, with which every message of ours ends, or the name of the code.
fn result(status: &Status) -> &'static str {
    let name = status.message().rsplit_once('(').and_then(|(_, end)| end.strip_suffix(')'));
    let code = || usize::try_from(i32::from(status.code())).ok().and_then(|code| CODES.get(code).copied());
    name.and_then(Reason::from_name).map(Reason::name).or_else(code).unwrap_or("UNKNOWN")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status;
    use credbroker_observe::metrics::Exposition;

    #[test]
    fn every_answer_is_counted_once_by_its_reason() {
        let metrics = Metrics::default();
        let peer = Peer { uid: 1001, gid: 1, pid: None, listener: 0 };
        for status in [
            Status::ok(""),
            status::peer_denied(1001, status::NoRights::Stranger),
            status::peer_denied(1001, status::NoRights::Stranger),
            status::draining(),
            Status::unimplemented("made up (PEER_DENIED) "),
            Status::permission_denied("(SOMETHING_ELSE)"),
        ] {
            let response = status.into_http::<tonic::body::Body>();
            tally(&metrics, Rpc::GET, &peer, response.headers());
        }
        tally(&metrics, Rpc::of("/other"), &peer, &HeaderMap::new());
        let mut text = Exposition::default();
        metrics.requests.write(&mut text);
        insta::assert_snapshot!(text.into_text());
    }
}
