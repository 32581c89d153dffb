//! Sends spans to a collector: OTLP over gRPC, in batches, from a thread that no request waits for.

use std::{
    ffi::OsStr,
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use opentelemetry::{KeyValue, global};
use opentelemetry_otlp::{
    SpanExporter, WithExportConfig as _, WithTonicConfig as _, tonic_types::transport::ClientTlsConfig,
};
use opentelemetry_sdk::{
    Resource,
    error::OTelSdkResult,
    propagation::TraceContextPropagator,
    resource::{EnvResourceDetector, TelemetryResourceDetector},
    trace::{SdkTracerProvider, SpanData, SpanExporter as ExportSpans},
};
use tracing::{info, warn};

use super::spans::TRACER;
use credbroker_credential::text::chain;
use credbroker_plugin::Environment;

/// Set once, when the broker starts.
static PROVIDER: OnceLock<SdkTracerProvider> = OnceLock::new();

/// Starts to send traces if the standard variables name a collector. The rest of these variables is read by the
/// libraries of OpenTelemetry. Must be called within a tokio runtime.
pub fn start(environment: &Environment) {
    match collector(environment) {
        Ok(None) => {}
        Ok(Some((variable, endpoint))) => match provider(endpoint, environment) {
            Ok(provider) => {
                global::set_text_map_propagator(TraceContextPropagator::new());
                global::set_tracer_provider(provider.clone());
                if PROVIDER.set(provider).is_ok() && TRACER.set(global::tracer("credbroker")).is_ok() {
                    info!("sending traces to the collector that {variable} names");
                }
            }
            Err(error) => warn!("traces are not sent: {variable}: {}", chain(&error)),
        },
        Err(problem) => warn!("traces are not sent: {problem}"),
    }
}

/// Sends what is left, within `limit`.
pub async fn stop(limit: Duration) {
    if let Some(provider) = PROVIDER.get() {
        // If the collector does not answer in time, the rest is lost.
        drop(tokio::task::spawn_blocking(move || provider.shutdown_with_timeout(limit)).await);
    }
}

/// The variable that names the collector, and its endpoint. `None`: traces are not wanted.
fn collector(environment: &Environment) -> Result<Option<(&'static str, &str)>, &'static str> {
    let value = |name| environment.set(name).and_then(OsStr::to_str);
    let first = |names: [&'static str; 2]| names.into_iter().find_map(|name| Some((name, value(name)?)));
    let is_off = value("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"))
        || value("OTEL_TRACES_EXPORTER") == Some("none");
    let endpoint = first(["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"]);
    let protocol = first(["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"]);
    match protocol {
        _ if is_off || endpoint.is_none() => Ok(None),
        Some((_, protocol)) if protocol != "grpc" => {
            Err("the broker sends them over gRPC only; set OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=grpc")
        }
        _ => Ok(endpoint),
    }
}

fn provider(
    endpoint: &str,
    environment: &Environment,
) -> Result<SdkTracerProvider, opentelemetry_otlp::ExporterBuildError> {
    let mut builder = SpanExporter::builder().with_tonic().with_endpoint(endpoint);
    if !endpoint.starts_with("http://") {
        builder = builder.with_tls_config(ClientTlsConfig::new().with_enabled_roots());
    }
    let exporter = Reporting { exporter: builder.build()?, failures: AtomicU64::new(0) };
    let builder = SdkTracerProvider::builder().with_batch_exporter(exporter);
    Ok(builder.with_resource(resource(environment)).build())
}

/// What sends the spans: the name and version of the broker, and the attributes that the environment sets.
fn resource(environment: &Environment) -> Resource {
    let mut builder = Resource::builder_empty()
        .with_service_name("credbroker")
        .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
        .with_detectors(&[Box::new(TelemetryResourceDetector), Box::new(EnvResourceDetector::new())]);
    if let Some(name) = environment.set("OTEL_SERVICE_NAME").and_then(OsStr::to_str) {
        builder = builder.with_service_name(name.to_owned());
    }
    builder.build()
}

/// Logs when sending begins to fail, and when it works again.
#[derive(Debug)]
struct Reporting {
    exporter: SpanExporter,
    /// Batches that failed in a row.
    failures: AtomicU64,
}

impl ExportSpans for Reporting {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let sent = self.exporter.export(batch).await;
        match &sent {
            Ok(()) => match self.failures.swap(0, Ordering::Relaxed) {
                0 => {}
                lost => info!(lost, "traces are sent again"),
            },
            Err(error) if self.failures.fetch_add(1, Ordering::Relaxed) == 0 => {
                warn!("traces cannot be sent, and are lost until the collector takes them: {error}");
            }
            Err(_) => {}
        }
        sent
    }

    fn shutdown(&self) -> OTelSdkResult {
        self.exporter.shutdown()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}

#[cfg(test)]
mod tests;
