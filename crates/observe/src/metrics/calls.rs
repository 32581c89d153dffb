//! Plugin runs as client-go counts them, with its names and labels, so that dashboards for client-go show the broker.
//!
//! Source of the names: `k8s.io/component-base/metrics/prometheus/restclient`; of the meaning:
//! `k8s.io/client-go/plugin/pkg/client/auth/exec/metrics.go`.

use std::time::Duration;

use prometheus_client::metrics::counter::Counter;

use super::{
    counter::{Counts, Histogram, add_one, all},
    exposition::{ConstGauge, Exposition, families},
};

/// client-go's buckets: from ten minutes to four years.
const AGES: [f64; 11] = [
    600.0,
    1_800.0,
    3_600.0,
    14_400.0,
    86_400.0,
    604_800.0,
    2_592_000.0,
    7_776_000.0,
    15_552_000.0,
    31_104_000.0,
    124_416_000.0,
];

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
        let ended: Vec<_> = all(&self.ended)
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
