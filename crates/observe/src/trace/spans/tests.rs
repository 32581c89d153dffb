use http::HeaderValue;
use opentelemetry_sdk::propagation::TraceContextPropagator;

use super::*;

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// The trace, the parent's span, whether it is sampled, and its state.
fn parent(parent: &str, state: &str) -> Option<(String, String, bool, String)> {
    let mut headers = HeaderMap::new();
    headers.insert("traceparent", HeaderValue::from_str(parent).unwrap());
    headers.insert("tracestate", HeaderValue::from_str(state).unwrap());
    global::set_text_map_propagator(TraceContextPropagator::new());
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
    for text in ["", "00", zeros, &PARENT.to_uppercase(), &PARENT.replace("00-", "ff-"), &"-".repeat(4096)] {
        assert_eq!(parent(text, ""), None, "{text}");
    }
}
