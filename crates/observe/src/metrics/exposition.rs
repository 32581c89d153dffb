//! The text format of Prometheus, version 0.0.4.

use std::fmt::Write as _;

use super::counter::Observed;

/// A metric.
#[derive(Debug)]
pub struct Family {
    /// Its name.
    pub name: &'static str,
    /// What its samples are.
    pub kind: MetricKind,
    /// The names of its labels.
    pub labels: &'static [&'static str],
    /// What it is, in one sentence.
    pub help: &'static str,
}

/// What the samples of a metric are.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum MetricKind {
    /// A number that only grows.
    Counter,
    /// A number that goes up and down.
    Gauge,
    /// Counts by upper bound.
    Histogram,
}

impl MetricKind {
    /// Its name in the text format.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// A scrape that is being written.
#[derive(Debug, Default)]
pub struct Exposition {
    text: String,
    name: &'static str,
}

/// Labels of one sample.
type Labels<'a> = [(&'a str, &'a str)];

impl Exposition {
    /// The content type of the text.
    pub const CONTENT_TYPE: &'static str = "text/plain; version=0.0.4; charset=utf-8";

    /// Begins a family. The samples that follow are its.
    pub fn family(&mut self, family: &'static Family) {
        self.name = family.name;
        let Family { name, kind, help, .. } = family;
        let _infallible = write!(self.text, "# HELP {name} {help}\n# TYPE {name} {}\n", kind.name());
    }

    /// Writes a whole number.
    pub fn sample(&mut self, labels: &Labels<'_>, value: u64) {
        self.line("", labels, &value.to_string());
    }

    /// Writes a number.
    pub fn value(&mut self, labels: &Labels<'_>, value: f64) {
        self.line("", labels, &number(value));
    }

    /// Writes a histogram.
    pub(super) fn histogram(&mut self, labels: &Labels<'_>, observed: &Observed) {
        let bounds = observed.cumulative.iter().map(|(bound, count)| (number(*bound), *count));
        for (bound, count) in bounds.chain([("+Inf".to_owned(), observed.count)]) {
            let labels: Vec<_> = labels.iter().copied().chain([("le", bound.as_str())]).collect();
            self.line("_bucket", &labels, &count.to_string());
        }
        self.line("_sum", labels, &number(observed.sum));
        self.line("_count", labels, &observed.count.to_string());
    }

    /// The text so far.
    pub fn into_text(self) -> String {
        self.text
    }

    fn line(&mut self, suffix: &str, labels: &Labels<'_>, value: &str) {
        let _infallible = write!(self.text, "{}{suffix}", self.name);
        for (index, (name, label)) in labels.iter().enumerate() {
            let open = if index == 0 { '{' } else { ',' };
            let label = label.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let _infallible = write!(self.text, "{open}{name}=\"{label}\"");
        }
        let close = if labels.is_empty() { "" } else { "}" };
        let _infallible = writeln!(self.text, "{close} {value}");
    }
}

fn number(value: f64) -> String {
    if value == f64::INFINITY { "+Inf".to_owned() } else { value.to_string() }
}

/// Every metric, declared once: the exposition, `docs/operations.md` and `deploy/observability` are checked against it.
pub mod families {
    use super::{Family, MetricKind};

    macro_rules! families {
        ($($id:ident = $kind:ident $name:literal [$($label:literal),*] $help:literal;)+) => {
            $(#[doc = concat!("The metric `", $name, "`.")]
            pub static $id: Family =
                Family { name: $name, kind: MetricKind::$kind, labels: &[$($label),*], help: $help };)+

            /// Every metric, in the order of the exposition.
            pub static FAMILIES: &[&Family] = &[$(&$id),+];
        };
    }

    families! {
        CALLS = Counter "rest_client_exec_plugin_call_total" ["code", "call_status"]
            "Calls of exec plugins by exit code and status, as client-go counts them. Output that is not valid counts as no_error.";
        POLICY_CALLS = Counter "rest_client_exec_plugin_policy_call_total" ["status"]
            "Checks of `credentialPluginPolicy` before calls of exec plugins, by their result.";
        CERTIFICATE_TTL = Gauge "rest_client_exec_plugin_ttl_seconds" []
            "Seconds until the first client certificate expires, negative if it has expired, +Inf without certificates.";
        ROTATION_AGE = Histogram "rest_client_exec_plugin_certificate_rotation_age" []
            "Seconds from the notBefore of a client certificate until it was replaced.";
        OBTENTIONS = Counter "credbroker_credential_obtentions_total" ["provider", "result"]
            "Requests for a credential and messages of watches (KEP-5339), from memory, from a plugin run, or failed.";
        OBTENTION_TIME = Histogram "credbroker_credential_obtention_duration_seconds" ["provider", "result"]
            "Seconds that requests for a credential waited (KEP-5339). An answer from memory counts as 0.";
        RUNS = Counter "credbroker_plugin_runs_total" ["provider", "reason", "outcome"]
            "Plugin runs by the reason for the run and by how it ended.";
        RUN_TIME = Histogram "credbroker_plugin_run_duration_seconds" ["provider"]
            "Seconds that plugins ran.";
        QUEUE_TIME = Histogram "credbroker_plugin_run_queue_seconds" ["provider"]
            "Seconds that plugin runs waited for their turn.";
        REFRESHES = Counter "credbroker_refreshes_total" ["provider", "result"]
            "Plugin runs that renewed a credential before it expired, by result.";
        SAVED = Counter "credbroker_plugin_seconds_saved_total" ["provider"]
            "Seconds that plugins did not run, because the credential was in memory.";
        REQUESTS = Counter "credbroker_requests_total" ["rpc", "result"]
            "Requests by RPC and by result: OK, the reason of the error, or its gRPC code.";
        DENIALS = Counter "credbroker_denials_total" ["reason"]
            "Requests that were denied, by the reason of the error.";
        ENTRIES = Gauge "credbroker_entries" ["provider", "state"]
            "Keys in memory by the state of their credential.";
        EXPIRY = Gauge "credbroker_credential_expiry_seconds" ["provider"]
            "Seconds until the first valid credential of a provider expires.";
        WATCHERS = Gauge "credbroker_watchers" ["provider"]
            "Open watches of credentials.";
        READY = Gauge "credbroker_provider_ready" ["provider"]
            "Whether a provider is ready (1), as `/readyz/PROVIDER` says.";
        RELOADS = Counter "credbroker_reloads_total" ["result"]
            "Changes of the configuration that were applied, or refused because the new one is not valid.";
        CONFIGURATION = Gauge "credbroker_configuration_current" []
            "Whether the files of the configuration are in force as they are (1), or have problems.";
        HUB = Gauge "credbroker_hub_up" []
            "Whether the known ClusterProfiles are those of the hub (1). Absent if no ClusterProfiles are configured.";
        PROFILES = Gauge "credbroker_cluster_profiles" []
            "Known ClusterProfiles. Absent if no ClusterProfiles are configured.";
        START = Gauge "credbroker_start_time_seconds" []
            "When the broker started, in seconds since 1970.";
        BUILD = Gauge "credbroker_build_info" ["version", "commit"]
            "Always 1. The labels say what runs.";
    }
}

#[cfg(test)]
mod tests {
    use super::{
        families::{BUILD, RUN_TIME},
        *,
    };
    use crate::metrics::counter::Histogram;

    #[test]
    fn the_format_is_that_of_prometheus() {
        let mut text = Exposition::default();
        text.family(&BUILD);
        text.sample(&[("version", "a\\b\"c\nd"), ("commit", "é")], 1);
        text.value(&[], f64::INFINITY);
        text.value(&[], -0.5);
        text.family(&RUN_TIME);
        let histogram = Histogram::new(&[0.5, 10.0]);
        histogram.observe(std::time::Duration::from_millis(750));
        text.histogram(&[("provider", "gke")], &histogram.observed(0));
        insta::assert_snapshot!(text.into_text());
    }
}
