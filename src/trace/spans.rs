//! The spans of requests and plugin runs.

use std::time::Duration;

use http::HeaderMap;
use opentelemetry::{
    Context, KeyValue,
    trace::{FutureExt as _, SpanKind, Status, TraceContextExt as _, Tracer as _},
};

use super::{export, parent};
use crate::{
    metrics::{Rpc, RunOutcome, RunReason},
    plugin::PluginSpec,
};

/// The result of a request without an error.
const OK: &str = "OK";

/// The span of one request, until the answer begins.
#[derive(Debug)]
pub struct RequestSpan(Context);

impl RequestSpan {
    /// Starts the span of a request for the method `path`. It continues the trace that `headers` name.
    pub fn start(path: &str, headers: &HeaderMap) -> Self {
        let Some(tracer) = export::tracer() else { return Self(Context::new()) };
        // Not the path itself, which the caller chooses.
        let rpc = Rpc::of(path).name();
        let builder = tracer.span_builder(rpc).with_kind(SpanKind::Server);
        let builder =
            builder.with_attributes([KeyValue::new("rpc.system", "grpc"), KeyValue::new("rpc.method", rpc)]);
        let span = builder.start_with_context(tracer, &parent::of(headers));
        Self(Context::new().with_span(span))
    }

    /// Makes the span the current one while `call` runs, and ends it with `call`.
    pub fn around<F: Future>(self, call: F) -> impl Future<Output = F::Output> {
        call.with_context(self.0)
    }
}

/// Whether the current request has a span that a collector will get.
pub fn is_recording() -> bool {
    Context::current().span().is_recording()
}

/// Records which credential the current request is for.
pub fn names(spec: &PluginSpec) {
    let context = Context::current();
    if context.span().is_recording() {
        context.span().set_attributes(credential(spec));
    }
}

/// Records the result of the current request: `OK`, the reason of the error, or its gRPC code.
pub fn answered(result: &'static str) {
    let context = Context::current();
    let span = context.span();
    if span.is_recording() {
        span.set_attribute(KeyValue::new("credbroker.result", result));
        if result != OK {
            span.set_status(Status::error(result));
        }
    }
}

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

fn credential(spec: &PluginSpec) -> [KeyValue; 2] {
    let provider = KeyValue::new("credbroker.provider", spec.provider.name.to_string());
    [provider, KeyValue::new("credbroker.key", spec.key.to_string())]
}
