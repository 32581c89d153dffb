//! Spans of requests and plugin runs, for OpenTelemetry. In a build without the feature `otlp`, nothing here does anything.

#[cfg(feature = "otlp")]
mod export;
#[cfg(feature = "otlp")]
mod spans;

#[cfg(not(feature = "otlp"))]
pub use none::{RequestSpan, RunSpan, answered, names, start, stop};
#[cfg(feature = "otlp")]
pub use {
    export::{start, stop},
    spans::{RequestSpan, RunSpan, answered, names},
};

/// A build without traces.
#[cfg(not(feature = "otlp"))]
mod none {
    use std::{
        borrow::Borrow,
        future::{Ready, ready},
        time::Duration,
    };

    use http::HeaderMap;

    use crate::metrics::{RunOutcome, RunReason};
    use credbroker_plugin::{Environment, PluginSpec};

    /// Sends no traces.
    pub const fn start(_: &Environment) {}

    /// Nothing is left to send.
    pub fn stop(_: Duration) -> Ready<()> {
        ready(())
    }

    /// No span.
    #[derive(Clone, Copy, Debug)]
    pub struct RequestSpan;

    impl RequestSpan {
        /// No span.
        pub const fn start(_: &str, _: &HeaderMap) -> Self {
            Self
        }

        /// `call` itself.
        pub fn around<F: Future>(self, call: F) -> F {
            call
        }
    }

    /// Records nothing.
    pub fn names<S: Borrow<PluginSpec>>(_: impl FnOnce() -> Option<S>) {}

    /// Records nothing.
    pub const fn answered(_: &'static str) {}

    /// No span.
    #[derive(Clone, Copy, Debug)]
    pub struct RunSpan;

    impl RunSpan {
        /// No span.
        pub const fn start(_: &PluginSpec, _: RunReason) -> Self {
            Self
        }

        /// Records nothing.
        pub const fn awaited(&self) {}

        /// Records nothing.
        pub const fn end(&self, _: RunOutcome, _: Option<Duration>) {}
    }
}
