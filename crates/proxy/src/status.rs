//! Errors of the proxy, as `Status` objects that kubectl prints well.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use serde::Serialize;

/// An answer of the proxy itself, instead of one of an API server. The message names neither secrets nor values of a query.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct Refused {
    /// Status of the answer.
    pub code: StatusCode,
    /// For programs, in the words of Kubernetes where it has one.
    pub reason: &'static str,
    /// For people.
    pub message: String,
    /// When to try again. Clients of Kubernetes obey it after 429 and 5xx.
    pub retry_after: Option<Duration>,
}

impl Refused {
    /// A refusal with the reason that Kubernetes has for `code`.
    pub fn new(code: StatusCode, message: impl Into<String>) -> Self {
        Self { code, reason: reason(code), message: message.into(), retry_after: None }
    }

    /// The client must send another request (400).
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    /// The target is not known, or not for this caller (403): the same bytes for both, so that no caller learns which targets
    /// there are.
    pub fn target() -> Self {
        Self::new(
            StatusCode::FORBIDDEN,
            "this target does not exist, or you may not use it; if a kubeconfig has changed, write yours again with `credbroker kubeconfig proxy`",
        )
    }

    /// The same with a reason of the broker.
    #[must_use]
    pub fn because(self, reason: &'static str) -> Self {
        Self { reason, ..self }
    }

    /// The same with a time to try again.
    #[must_use]
    pub fn retry_after(self, time: Duration) -> Self {
        Self { retry_after: Some(time), ..self }
    }

    /// The answer that the client gets.
    pub fn into_response<B: From<Bytes>>(self) -> Response<B> {
        // Whole seconds, and never zero: a client that obeys would ask again without a pause.
        let seconds =
            self.retry_after.map(|time| (time.as_secs() + u64::from(time.subsec_nanos() > 0)).max(1));
        let status = Status {
            kind: "Status",
            api_version: "v1",
            metadata: Metadata {},
            outcome: "Failure",
            message: format!("credbroker: {}", self.message),
            reason: self.reason,
            details: seconds.map(|retry_after_seconds| Details { retry_after_seconds }),
            code: self.code.as_u16(),
        };
        // Text and numbers only, which JSON can always have.
        let mut body = serde_json::to_vec(&status).unwrap_or_default();
        body.push(b'\n');
        let mut response = Response::new(B::from(body.into()));
        *response.status_mut() = self.code;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        if let Some(seconds) = seconds {
            headers.insert(header::RETRY_AFTER, seconds.into());
        }
        response
    }
}

/// `metav1.Status`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    kind: &'static str,
    api_version: &'static str,
    metadata: Metadata,
    #[serde(rename = "status")]
    outcome: &'static str,
    message: String,
    reason: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<Details>,
    code: u16,
}

#[derive(Serialize)]
struct Metadata {}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Details {
    retry_after_seconds: u64,
}

/// `metav1.StatusReason`; where it has none, in its style.
fn reason(code: StatusCode) -> &'static str {
    match code {
        StatusCode::BAD_REQUEST => "BadRequest",
        StatusCode::UNAUTHORIZED => "Unauthorized",
        StatusCode::FORBIDDEN => "Forbidden",
        StatusCode::NOT_FOUND => "NotFound",
        StatusCode::METHOD_NOT_ALLOWED => "MethodNotAllowed",
        StatusCode::PAYLOAD_TOO_LARGE => "RequestEntityTooLarge",
        StatusCode::URI_TOO_LONG => "RequestURITooLong",
        StatusCode::MISDIRECTED_REQUEST => "MisdirectedRequest",
        StatusCode::TOO_MANY_REQUESTS => "TooManyRequests",
        StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => "RequestHeaderFieldsTooLarge",
        StatusCode::BAD_GATEWAY => "BadGateway",
        StatusCode::SERVICE_UNAVAILABLE => "ServiceUnavailable",
        StatusCode::GATEWAY_TIMEOUT => "Timeout",
        _ => "InternalError",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(refused: Refused) -> (Vec<String>, String) {
        let response = refused.into_response::<Bytes>();
        let headers =
            response.headers().iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()));
        (headers.collect(), String::from_utf8(response.body().to_vec()).unwrap())
    }

    #[test]
    fn a_refusal_is_a_status() {
        let (headers, body) = written(Refused::bad_request("the path is not UTF-8"));
        assert_eq!(
            body,
            concat!(
                r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","#,
                r#""message":"credbroker: the path is not UTF-8","reason":"BadRequest","code":400}"#,
                "\n"
            )
        );
        let expected =
            ["content-type: application/json", "cache-control: no-store", "x-content-type-options: nosniff"];
        assert_eq!(headers, expected);
    }

    #[test]
    fn a_time_to_try_again_is_a_whole_second_or_more() {
        for (time, seconds) in [(0, 1), (1, 1), (1000, 1), (1001, 2), (30_000, 30)] {
            let refused =
                Refused::new(StatusCode::SERVICE_UNAVAILABLE, "no credential").because("PLUGIN_FAILED");
            let (headers, body) = written(refused.retry_after(Duration::from_millis(time)));
            assert!(headers.contains(&format!("retry-after: {seconds}")), "{headers:?}");
            assert!(
                body.contains(&format!(
                    r#""reason":"PLUGIN_FAILED","details":{{"retryAfterSeconds":{seconds}}},"code":503"#
                )),
                "{body}"
            );
        }
    }

    #[test]
    fn every_code_of_the_proxy_has_a_reason() {
        for code in [400, 401, 403, 404, 405, 413, 414, 421, 429, 431, 502, 503, 504] {
            let refused = Refused::new(StatusCode::from_u16(code).unwrap(), "");
            assert_ne!(refused.reason, "InternalError", "{code}");
            assert!(refused.reason.bytes().all(|byte| byte.is_ascii_alphabetic()));
        }
    }

    #[test]
    fn a_message_of_any_text_is_json() {
        let (_, body) = written(Refused::new(StatusCode::BAD_GATEWAY, "\"\\\n\u{1f512}"));
        let body: serde_json::Value = serde_json::from_str(&body).unwrap();
        assert_eq!(body["message"], "credbroker: \"\\\n\u{1f512}");
    }
}
