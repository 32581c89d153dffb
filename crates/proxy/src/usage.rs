//! What goes through the proxy to each target, for `credbroker status`.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use crate::target::KnownTarget;

/// What went to a target since it came into use.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    requests: AtomicU64,
    up: AtomicU64,
    down: AtomicU64,
}

/// What the proxy does now.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    /// Open connections of clients.
    pub connections: usize,
    /// The targets in use, in order.
    pub targets: Vec<TargetUse>,
}

/// A target in use.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TargetUse {
    /// `NAMESPACE/NAME` of a `ClusterProfile`, or the name of a context.
    pub name: String,
    /// The path that its requests begin with.
    pub path: String,
    /// Requests since it came into use.
    pub requests: u64,
    /// Open watches, logs, tunnels and requests below `…/proxy/`.
    pub streams: usize,
    /// Bytes of clients, without headers: the bodies of requests that have ended, and what tunnels have carried.
    pub bytes_up: u64,
    /// Bytes to clients, without headers.
    pub bytes_down: u64,
}

impl Traffic {
    /// A request begins.
    pub(crate) fn begin(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    /// Bytes of a client have passed.
    pub(crate) fn up(&self, bytes: u64) {
        self.up.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Bytes to a client have passed.
    pub(crate) fn down(&self, bytes: u64) {
        self.down.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The use of `target`, whose traffic this is.
    pub(crate) fn of(&self, target: &KnownTarget, streams: usize) -> TargetUse {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        TargetUse {
            name: target.name(),
            path: target.path(),
            requests: read(&self.requests),
            streams,
            bytes_up: read(&self.up),
            bytes_down: read(&self.down),
        }
    }
}
