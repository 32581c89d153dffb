//! Spans of requests and plugin runs, for OpenTelemetry. A build with the feature `otlp` can send them to a collector; until
//! one is named, nothing here does anything.

#[cfg(feature = "otlp")]
mod export;
mod spans;

#[cfg(feature = "otlp")]
pub use export::{start, stop};
pub use spans::{RequestSpan, RunSpan, answered, forwarded, forwards, names};

/// Sends no traces.
#[cfg(not(feature = "otlp"))]
pub const fn start(_: &credbroker_plugin::Environment) {}

/// Nothing is left to send.
#[cfg(not(feature = "otlp"))]
pub fn stop(_: std::time::Duration) -> std::future::Ready<()> {
    std::future::ready(())
}
