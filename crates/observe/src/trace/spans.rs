//! Spans of requests and of plugin runs.

use std::{borrow::Borrow, sync::OnceLock, time::Duration};

use futures_util::future::Either;
use http::{HeaderMap, HeaderName};
use opentelemetry::{
    Context, KeyValue,
    global::{self, BoxedTracer},
    propagation::Extractor,
    trace::{FutureExt as _, SpanKind, Status, TraceContextExt as _, Tracer as _},
};

use crate::metrics::{Rpc, RunOutcome, RunReason};
use credbroker_plugin::PluginSpec;

/// Set once, when the broker starts to send spans.
pub(super) static TRACER: OnceLock<BoxedTracer> = OnceLock::new();
/// Longest `tracestate` that is continued, as the specification asks: each span keeps it.
const LONGEST: usize = 512;

/// The span of one request, until the answer begins.
#[derive(Debug)]
pub struct RequestSpan(Option<Context>);

impl RequestSpan {
    /// Starts the span of a request. It continues the trace that `headers` name.
    pub fn start(rpc: Rpc, headers: &HeaderMap) -> Self {
        let Some(tracer) = TRACER.get() else { return Self(None) };
        let rpc = rpc.name();
        let builder = tracer.span_builder(rpc).with_kind(SpanKind::Server);
        let builder =
            builder.with_attributes([KeyValue::new("rpc.system", "grpc"), KeyValue::new("rpc.method", rpc)]);
        let span = builder.start_with_context(tracer, &parent(headers));
        Self(Some(Context::new().with_span(span)))
    }

    /// Starts the span of a request that the proxy forwards. It continues the trace that `headers` name.
    pub fn forwarded(headers: &HeaderMap) -> Self {
        let Some(tracer) = TRACER.get() else { return Self(None) };
        let span = tracer.span_builder("forward").with_kind(SpanKind::Server);
        let span = span.start_with_context(tracer, &parent(headers));
        Self(Some(Context::new().with_span(span)))
    }

    /// Makes the span the current one while `call` runs, and ends it with `call`.
    pub fn around<F: Future>(self, call: F) -> impl Future<Output = F::Output> {
        match self.0 {
            Some(context) => Either::Left(call.with_context(context)),
            None => Either::Right(call),
        }
    }
}

/// Records which credential the current request is for, if a collector will get its span.
pub fn names<S: Borrow<PluginSpec>>(spec: impl FnOnce() -> Option<S>) {
    if let Some(context) = recorded()
        && let Some(spec) = spec()
    {
        context.span().set_attributes(credential(spec.borrow()));
    }
}

/// Records what the proxy forwards with the current request: its verb and its resource, where it goes, and its name in the
/// audit log of the API server.
pub fn forwards<const N: usize>(attributes: impl FnOnce() -> [(&'static str, String); N]) {
    if let Some(context) = recorded() {
        context.span().set_attributes(attributes().map(|(name, value)| KeyValue::new(name, value)));
    }
}

/// Records the status of the answer to the current request. `reason`: the proxy itself has refused it.
pub fn forwarded(status: u16, reason: Option<&'static str>) {
    if let Some(context) = recorded() {
        let span = context.span();
        span.set_attribute(KeyValue::new("http.response.status_code", i64::from(status)));
        if let Some(reason) = reason {
            span.set_attribute(KeyValue::new("credbroker.result", reason));
        }
        if reason.is_some() || status >= 500 {
            span.set_status(Status::error(reason.unwrap_or("the API server failed")));
        }
    }
}

/// Records the result of the current request: `OK`, the reason of the error, or its gRPC code.
pub fn answered(result: &'static str) {
    if let Some(context) = recorded() {
        let span = context.span();
        span.set_attribute(KeyValue::new("credbroker.result", result));
        if result != "OK" {
            span.set_status(Status::error(result));
        }
    }
}

/// The context of the current request, if a collector will get its span.
fn recorded() -> Option<Context> {
    TRACER.get().map(|_| Context::current()).filter(|context| context.span().is_recording())
}

/// The trace that a request with these headers names (W3C Trace Context).
fn parent(headers: &HeaderMap) -> Context {
    global::get_text_map_propagator(|format| format.extract_with_context(&Context::new(), &Sent(headers)))
}

struct Sent<'a>(&'a HeaderMap);

impl Extractor for Sent<'_> {
    fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name)?.to_str().ok().filter(|value| value.len() <= LONGEST)
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(HeaderName::as_str).collect()
    }
}

/// The span of one plugin run, from the moment that it is queued.
#[derive(Debug)]
pub struct RunSpan(Context);

impl RunSpan {
    /// Starts the span, below that of the current request if a request starts the run.
    pub fn start(spec: &PluginSpec, reason: RunReason) -> Self {
        let Some(tracer) = TRACER.get() else { return Self(Context::new()) };
        let reason = KeyValue::new("credbroker.run.reason", reason.name());
        let attributes = credential(spec).into_iter().chain([reason]);
        let builder = tracer.span_builder("plugin run").with_attributes(attributes);
        let span = builder.start_with_context(tracer, &Context::current());
        Self(Context::new().with_span(span))
    }

    /// Links the span of the current request to this one. Several requests can wait for one run.
    pub fn awaited(&self) {
        if let Some(context) = recorded() {
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
    [provider, KeyValue::new("credbroker.id", spec.key.to_string())]
}

#[cfg(test)]
#[cfg(feature = "otlp")]
mod tests;
