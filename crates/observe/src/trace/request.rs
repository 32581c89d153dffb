//! The spans of requests.

use http::HeaderMap;
use opentelemetry::{
    Context, KeyValue,
    trace::{FutureExt as _, SpanKind, Status, TraceContextExt as _, Tracer as _},
};

use super::{export, parent, run};
use crate::metrics::Rpc;
use credbroker_plugin::PluginSpec;

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
        context.span().set_attributes(run::credential(spec));
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
