//! The spans of plugin runs.

use std::time::Duration;

use opentelemetry::{
    Context, KeyValue,
    trace::{Status, TraceContextExt as _, Tracer as _},
};

use super::export;
use crate::metrics::{RunOutcome, RunReason};
use credbroker_plugin::PluginSpec;

/// The span of one plugin run, from the moment that it is queued.
#[derive(Debug)]
pub struct RunSpan(Context);

impl RunSpan {
    /// Starts the span, below that of the current request if a request starts the run.
    pub fn start(spec: &PluginSpec, reason: RunReason) -> Self {
        let Some(tracer) = export::tracer() else { return Self(Context::new()) };
        let reason = KeyValue::new("credbroker.run.reason", reason.name());
        let attributes = credential(spec).into_iter().chain([reason]);
        let builder = tracer.span_builder("plugin run").with_attributes(attributes);
        let span = builder.start_with_context(tracer, &Context::current());
        Self(Context::new().with_span(span))
    }

    /// Links the span of the current request to this one. Several requests can wait for one run.
    pub fn awaited(&self) {
        let context = Context::current();
        if context.span().is_recording() {
            context.span().add_link(self.0.span().span_context().clone(), Vec::new());
        }
    }

    /// Ends the span of a run that was `queued` so long; `None`: it never started.
    pub fn end(&self, outcome: RunOutcome, queued: Option<Duration>) {
        let span = self.0.span();
        span.set_attribute(KeyValue::new("credbroker.run.outcome", outcome.name()));
        if let Some(queued) = queued {
            span.set_attribute(KeyValue::new("credbroker.run.queued_seconds", queued.as_secs_f64()));
        }
        if outcome.is_success() == Some(false) {
            span.set_status(Status::error(outcome.name()));
        }
        span.end();
    }
}

/// What names a credential in a span.
pub(super) fn credential(spec: &PluginSpec) -> [KeyValue; 2] {
    let provider = KeyValue::new("credbroker.provider", spec.provider.name.to_string());
    [provider, KeyValue::new("credbroker.key", spec.key.to_string())]
}
