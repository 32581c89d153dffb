//! The text format of Prometheus, version 0.0.4, as `prometheus_client` writes it.

use std::fmt;

use prometheus_client::{
    encoding::{EncodeMetric, MetricEncoder, text::encode_registry},
    registry::{Metric, Registry},
};

pub use prometheus_client::metrics::{MetricType, gauge::ConstGauge};

/// A metric.
#[derive(Debug)]
pub struct Family {
    /// Its name.
    pub name: &'static str,
    /// What its samples are.
    pub kind: MetricType,
    /// The names of its labels.
    pub labels: &'static [&'static str],
    /// What it is, in one sentence.
    pub help: &'static str,
}

/// A scrape that is being written.
#[derive(Debug, Default)]
pub struct Exposition(Registry);

impl Exposition {
    /// The content type of the text.
    pub const CONTENT_TYPE: &'static str = "text/plain; version=0.0.4; charset=utf-8";

    /// Adds the one sample of a metric without labels. A number is a [`ConstGauge`], also for a counter, so its name
    /// stays as it is. The library would append the `_total` of `OpenMetrics` to a counter.
    pub fn one(&mut self, family: &'static Family, sample: impl Metric) {
        // The library ends each help text with a full stop.
        let help = family.help.trim_end_matches('.');
        self.0.register(family.name, help, Typed { kind: family.kind, metric: sample });
    }

    /// Adds the samples of a metric, each with the values of its labels.
    pub fn all<'a, const N: usize, M: Metric>(
        &mut self,
        family: &'static Family,
        samples: impl IntoIterator<Item = ([&'a str; N], M)>,
    ) {
        let labels =
            |values: [&str; N]| family.labels.iter().copied().zip(values.map(str::to_owned)).collect();
        let samples = samples.into_iter().map(|(values, metric)| (labels(values), metric)).collect();
        self.one(family, Samples(samples));
    }

    /// The same for whole numbers.
    pub fn numbers<'a, const N: usize>(
        &mut self,
        family: &'static Family,
        samples: impl IntoIterator<Item = ([&'a str; N], u64)>,
    ) {
        self.all(family, samples.into_iter().map(|(labels, number)| (labels, ConstGauge::new(number))));
    }

    /// The text so far.
    pub fn into_text(self) -> String {
        let mut text = String::new();
        let _infallible = encode_registry(&mut text, &self.0);
        text
    }
}

/// A metric of the type that is declared.
#[derive(Debug)]
struct Typed<M> {
    kind: MetricType,
    metric: M,
}

impl<M: EncodeMetric> EncodeMetric for Typed<M> {
    fn encode(&self, encoder: MetricEncoder<'_>) -> fmt::Result {
        self.metric.encode(encoder)
    }

    fn metric_type(&self) -> MetricType {
        self.kind
    }
}

/// The samples of one metric, in their order. The library's own families have none.
#[derive(Debug)]
struct Samples<M>(Vec<(Vec<(&'static str, String)>, M)>);

impl<M: EncodeMetric> EncodeMetric for Samples<M> {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|(labels, metric)| metric.encode(encoder.encode_family(labels)?))
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Unknown
    }
}

/// The value of each label `result` for what succeeded.
pub const SUCCESS: &str = "success";
/// The value of each label `result` for what failed.
pub const FAILURE: &str = "failure";

/// Every metric, declared once: the exposition, `docs/operations.md` and `deploy/observability` are checked against it.
pub mod families {
    use super::{Family, MetricType};

    macro_rules! families {
        ($($id:ident = $kind:ident $name:literal [$($label:literal),*] $help:literal;)+) => {
            $(#[doc = concat!("The metric `", $name, "`.")]
            pub static $id: Family =
                Family { name: $name, kind: MetricType::$kind, labels: &[$($label),*], help: $help };)+

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
        CREDENTIAL_REQUESTS = Counter "credbroker_credential_requests_total" ["provider", "source", "result"]
            "Requests for a credential and messages of watches, by their result (success, failure) and by the source of the credential: memory, plugin or none.";
        CREDENTIAL_TIME = Histogram "credbroker_credential_request_duration_seconds" ["provider", "result"]
            "Seconds that requests for a credential waited, by their result (success, failure). An answer from memory counts as 0.";
        RUNS = Counter "credbroker_plugin_runs_total" ["provider", "reason", "outcome"]
            "Plugin runs by the reason for the run and by how it ended.";
        RUN_TIME = Histogram "credbroker_plugin_run_duration_seconds" ["provider"]
            "Seconds that plugins ran.";
        QUEUE_TIME = Histogram "credbroker_plugin_run_queue_seconds" ["provider"]
            "Seconds that plugin runs waited for their turn.";
        REFRESHES = Counter "credbroker_refreshes_total" ["provider", "result"]
            "Plugin runs that refreshed a credential before it expired, by result (success, failure).";
        SAVED = Counter "credbroker_plugin_saved_seconds_total" ["provider"]
            "Seconds that plugins did not run, because the credential was in memory.";
        REQUESTS = Counter "credbroker_requests_total" ["rpc", "result", "reason"]
            "Requests by RPC and result (success, failure). For failures, the label reason is the reason of the error, or its gRPC code.";
        DENIALS = Counter "credbroker_denials_total" ["reason"]
            "Requests that were denied, by the reason of the error.";
        CREDENTIALS = Gauge "credbroker_credentials" ["provider", "state"]
            "Credentials in memory by their state.";
        EXPIRATION = Gauge "credbroker_credential_expiration_timestamp_seconds" ["provider"]
            "When the first valid credential of a provider expires, in seconds since 1970.";
        WATCHES = Gauge "credbroker_watches" ["provider"]
            "Open watches of credentials.";
        READY = Gauge "credbroker_provider_ready" ["provider"]
            "Whether a provider is ready (1), as `/readyz/PROVIDER` reports.";
        RELOADS = Counter "credbroker_reloads_total" ["result"]
            "Configuration reloads by result: success if the new configuration was applied, failure if it is not valid.";
        CONFIGURATION = Gauge "credbroker_config_last_reload_successful" []
            "Whether the current contents of the configuration files are in use (1), or have problems (0).";
        HUB = Gauge "credbroker_hub_up" []
            "Whether the broker knows the current ClusterProfiles of the hub (1). Absent if no ClusterProfiles are configured.";
        HUB_SINCE = Gauge "credbroker_hub_last_change_timestamp_seconds" []
            "When the hub last became readable or unreadable, in seconds since 1970. Absent if no ClusterProfiles are configured.";
        PROFILES = Gauge "credbroker_cluster_profiles" []
            "Known ClusterProfiles. Absent if no ClusterProfiles are configured.";
        PROXY_REQUESTS = Counter "credbroker_proxy_requests_total" ["verb", "code"]
            "Requests that the proxy answered, by verb and status. The code 0 means that the client disconnected first. Absent without a proxy.";
        PROXY_TIME = Histogram "credbroker_proxy_request_duration_seconds" []
            "Seconds from a request to the end of its answer, without watches and other requests that last. Absent without a proxy.";
        PROXY_BYTES = Counter "credbroker_proxy_bytes_total" ["direction"]
            "Bytes of bodies and of upgraded connections, from clients (up) and to clients (down). Absent without a proxy.";
        PROXY_OPEN = Gauge "credbroker_proxy_open_requests" []
            "Open requests of the proxy, including watches and upgraded connections. Absent without a proxy.";
        START = Gauge "credbroker_start_time_seconds" []
            "When the broker started, in seconds since 1970.";
        BUILD = Gauge "credbroker_build_info" ["version", "commit"]
            "Always 1. The labels describe the running broker.";
        PROCESSOR_TIME = Counter "process_cpu_seconds_total" []
            "Seconds of processor time that the broker used, without its plugins.";
        MEMORY = Gauge "process_resident_memory_bytes" []
            "Resident memory of the broker in bytes, without its plugins.";
        OPEN_FILES = Gauge "process_open_fds" []
            "Open file descriptors of the broker.";
        MOST_OPEN_FILES = Gauge "process_max_fds" []
            "The limit of open file descriptors.";
    }
}

#[cfg(test)]
mod tests {
    use super::{
        families::{BUILD, CERTIFICATE_TTL, DENIALS, RUN_TIME},
        *,
    };
    use crate::metrics::counter::Histogram;

    #[test]
    fn the_format_is_that_of_prometheus() {
        let mut text = Exposition::default();
        text.all(&BUILD, [(["a\\b\"c\nd", "é"], ConstGauge::new(1_u64))]);
        text.one(&CERTIFICATE_TTL, ConstGauge::new(-0.5));
        text.all(&DENIALS, [([""; 1], ConstGauge::new(7_u64))]);
        let histogram = Histogram::new(&[0.5, 10.0]);
        histogram.observe(std::time::Duration::from_millis(750));
        text.all(&RUN_TIME, [(["gke"], histogram.observed(0))]);
        insta::assert_snapshot!(text.into_text());
    }
}
