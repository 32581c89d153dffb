//! Ends connections and streams without a loss for their clients.

use std::{sync::Arc, time::Duration};

use futures_util::{Stream, StreamExt as _};
use tokio::{sync::watch, time::timeout};
use tokio_util::sync::CancellationToken;

use crate::{
    exchange::Exchanges,
    rights::Rights,
    target::{KnownTarget, SWEEP, Targets},
};

/// How long streams that may no longer be have until they are cut.
const REVOKED: Duration = Duration::from_millis(500);
/// How long it takes until a stream that was cut is gone.
const CUT: Duration = Duration::from_secs(1);

/// Ends everything: watches as soon as they are between two events, and the rest after `limit`.
///
/// `closing` is cancelled when no stream is open any longer, or after `limit`. Until then the port goes on to accept: a client that
/// has a handle would wait for TLS, and Go's clients wait ten seconds for that.
pub(crate) async fn drain(exchanges: &Exchanges, limit: Duration, closing: &CancellationToken) {
    exchanges.begin_draining(limit);
    let ended = async {
        drop(timeout(limit, exchanges.long_ended()).await);
        closing.cancel();
        exchanges.ended().await;
    };
    // What is left belongs to clients that do not read.
    drop(timeout(limit + CUT, ended).await);
}

/// Ends the requests of callers that have lost their right.
pub(crate) async fn follow_rights(
    exchanges: Arc<Exchanges>,
    rights: Arc<dyn Rights>,
    stop: CancellationToken,
) {
    let mut changes: watch::Receiver<u64> = rights.changes();
    loop {
        tokio::select! {
            news = changes.changed() => if news.is_err() { return },
            () = stop.cancelled() => return,
        }
        exchanges.end(REVOKED, |parties| !rights.may_use(&parties.caller, &parties.target));
    }
}

/// Ends the requests to targets that are gone, and drops those that are not used.
pub(crate) async fn follow_targets(
    exchanges: Arc<Exchanges>,
    targets: Arc<Targets>,
    stop: CancellationToken,
) {
    let mut changes = targets.changes();
    let mut sweep = tokio::time::interval(SWEEP);
    loop {
        tokio::select! {
            () = changes.changed() => {
                let gone = targets.forget_removed();
                exchanges.end(REVOKED, |parties| gone.contains(&parties.target));
            }
            _ = sweep.tick() => targets.sweep(|known| exchanges.is_used(known)),
            () = stop.cancelled() => return,
        }
    }
}

/// Ends the requests to `target` that were sent with a credential that the broker has withdrawn.
pub(crate) async fn follow_credential(
    exchanges: Arc<Exchanges>,
    target: Arc<KnownTarget>,
    mut withdrawals: impl Stream<Item = ()> + Unpin,
    stop: CancellationToken,
) {
    loop {
        tokio::select! {
            withdrawn = withdrawals.next() => if withdrawn.is_none() { return },
            () = stop.cancelled() => return,
        }
        exchanges.end(REVOKED, |parties| parties.target == target);
    }
}
