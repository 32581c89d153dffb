//! The trace that a caller names in its request (W3C Trace Context).

use http::{HeaderMap, HeaderName};
use opentelemetry::{
    Context,
    propagation::{Extractor, TextMapPropagator as _},
};
use opentelemetry_sdk::propagation::TraceContextPropagator;

/// Longest `tracestate` that is continued. The specification asks for 512 characters; a caller could send 16 KiB, and
/// each span would keep them.
const LONGEST: usize = 512;

/// The parent of a request with these headers.
pub(super) fn of(headers: &HeaderMap) -> Context {
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

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use opentelemetry::trace::TraceContextExt as _;

    use super::*;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    /// The trace, the parent's span, whether it is sampled, and its state.
    fn parent(parent: &str, state: &str) -> Option<(String, String, bool, String)> {
        let mut headers = HeaderMap::new();
        headers.insert("traceparent", HeaderValue::from_str(parent).unwrap());
        headers.insert("tracestate", HeaderValue::from_str(state).unwrap());
        let context = of(&headers);
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
