//! Spans of requests and of plugin runs.

use std::{borrow::Borrow, time::Duration};

use http::{HeaderMap, HeaderName};
use opentelemetry::{
    Context, KeyValue,
    propagation::{Extractor, TextMapPropagator as _},
    trace::{FutureExt as _, SpanKind, Status, TraceContextExt as _, Tracer as _},
};
use opentelemetry_sdk::propagation::TraceContextPropagator;

use super::export;
use crate::metrics::{Rpc, RunOutcome, RunReason};
use credbroker_plugin::PluginSpec;

/// The result of a request without an error.
const OK: &str = "OK";
/// Longest `tracestate` that is continued. The specification asks for 512 characters; a caller could send 16 KiB, and
/// each span would keep them.
const LONGEST: usize = 512;

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
        let span = builder.start_with_context(tracer, &parent(headers));
        Self(Context::new().with_span(span))
    }

    /// Makes the span the current one while `call` runs, and ends it with `call`.
    pub fn around<F: Future>(self, call: F) -> impl Future<Output = F::Output> {
        call.with_context(self.0)
    }
}

/// Records which credential the current request is for, if a collector will get its span.
pub fn names<S: Borrow<PluginSpec>>(spec: impl FnOnce() -> Option<S>) {
    let context = Context::current();
    if context.span().is_recording()
        && let Some(spec) = spec()
    {
        context.span().set_attributes(credential(spec.borrow()));
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

/// The trace that a request with these headers names (W3C Trace Context).
fn parent(headers: &HeaderMap) -> Context {
    TraceContextPropagator::new().extract_with_context(&Context::new(), &Sent(headers))
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
fn credential(spec: &PluginSpec) -> [KeyValue; 2] {
    let provider = KeyValue::new("credbroker.provider", spec.provider.name.to_string());
    [provider, KeyValue::new("credbroker.key", spec.key.to_string())]
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    /// The trace, the parent's span, whether it is sampled, and its state.
    fn parent(parent: &str, state: &str) -> Option<(String, String, bool, String)> {
        let mut headers = HeaderMap::new();
        headers.insert("traceparent", HeaderValue::from_str(parent).unwrap());
        headers.insert("tracestate", HeaderValue::from_str(state).unwrap());
        let context = super::parent(&headers);
        let span = context.span();
        let found = span.span_context();
        found.is_valid().then(|| {
            let (trace, span) = (found.trace_id().to_string(), found.span_id().to_string());
            (trace, span, found.is_sampled(), found.trace_state().header())
        })
    }

    #[test]
    fn the_trace_of_the_caller_is_continued() {
        let expected = |sampled, state: &str| {
            let (trace, span) = ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331");
            Some((trace.to_owned(), span.to_owned(), sampled, state.to_owned()))
        };
        assert_eq!(parent(PARENT, "a=1,b=2"), expected(true, "a=1,b=2"));
        assert_eq!(parent(&PARENT.replace("-01", "-00"), ""), expected(false, ""));
        assert_eq!(parent(PARENT, &format!("a={}", "x".repeat(LONGEST))), expected(true, ""));
    }

    #[test]
    fn what_is_not_a_trace_is_ignored() {
        let zeros = "00-00000000000000000000000000000000-0000000000000000-01";
        for text in
            ["", "00", zeros, &PARENT.to_uppercase(), &PARENT.replace("00-", "ff-"), &"-".repeat(4096)]
        {
            assert_eq!(parent(text, ""), None, "{text}");
        }
    }
}
