//! Spans of requests and plugin runs, for OpenTelemetry. In a build without the feature `otlp`, nothing here does anything.

#[cfg(feature = "otlp")]
mod export;
#[cfg(not(feature = "otlp"))]
mod none;
#[cfg(feature = "otlp")]
mod parent;
#[cfg(feature = "otlp")]
mod request;
#[cfg(feature = "otlp")]
mod run;

#[cfg(not(feature = "otlp"))]
pub use none::{RequestSpan, RunSpan, answered, is_recording, names, start, stop};
#[cfg(feature = "otlp")]
pub use {
    export::{start, stop},
    request::{RequestSpan, answered, is_recording, names},
    run::RunSpan,
};
