//! Spans of requests and plugin runs, for OpenTelemetry. In a build without the feature `otlp`, nothing here does anything.

#[cfg(feature = "otlp")]
mod export;
#[cfg(not(feature = "otlp"))]
mod none;
#[cfg(feature = "otlp")]
mod spans;

#[cfg(not(feature = "otlp"))]
pub use none::{RequestSpan, RunSpan, answered, is_recording, names, start, stop};
#[cfg(feature = "otlp")]
pub use {
    export::{start, stop},
    spans::{RequestSpan, RunSpan, answered, is_recording, names},
};
