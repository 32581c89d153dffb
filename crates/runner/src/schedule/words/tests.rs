use super::*;

const UNKNOWN: Throttling = Throttling { retry_after: None };

fn after(seconds: u64) -> Throttling {
    Throttling { retry_after: Some(Duration::from_secs(seconds)) }
}

#[test]
fn throttling_is_recognized_in_the_words_of_issuers() {
    for text in [
        "An error occurred (Throttling) when calling the AssumeRole operation (reached max retries: 4): Rate exceeded",
        "operation error STS: https response error StatusCode: 400, api error Throttling: Rate exceeded",
        "Throttling",
        "error: TooManyRequests: slow down",
        "unexpected status code 429",
        "HTTP 429: Too Many Requests",
        "429 Client Error",
        "server returned status:429.",
        r#"{"error":{"code":429,"status":"RESOURCE_EXHAUSTED"}}"#,
        "rpc error: code = RESOURCE_EXHAUSTED desc = quota",
        "invalid_request: AADSTS90055: the tenant is being throttled",
        "AADSTS50196 | Trace ID: 1",
        "first line | (HTTP/1.1 429) | last line",
    ] {
        assert_eq!(throttling(text, ForeignTexts::default), Some(UNKNOWN), "{text}");
    }
}

#[test]
fn parts_of_longer_words_and_numbers_are_ignored() {
    for text in [
        "",
        "xThrottling",
        "Throttlings",
        "Throttling_x",
        "ThrottlingÄ",
        "client-side throttling, not priority and fairness",
        "rate exceeded the limit",
        "Rate  exceeded",
        "TooManyRequestsX",
        "X_RESOURCE_EXHAUSTED",
        "AADSTS900551",
        "4290",
        "1429",
        "HTTP 4290: x",
        "1.429 s",
        "429.5 ms",
        "took 429ms",
        "429,000 bytes",
        "2026-11-21 10:00:00,429 connection refused",
        "2026-11-21T10:00:00.429Z refused",
        "10:00:00.429 refused",
        "id 8-429-1",
        "token.go:429] no token",
        "/src/main.py:429: error",
        "File \"x.py\", line 429, in main",
        "main.c:429:5: error",
        "see the Retry-After header",
        "x-retry-after_ms: 5",
        "not logged in",
    ] {
        assert_eq!(throttling(text, ForeignTexts::default), None, "{text}");
    }
}

#[test]
fn the_time_that_the_issuer_names_is_used() {
    for (text, expected) in [
        ("Retry-After: 30", after(30)),
        ("retry-after:7", after(7)),
        ("< Retry-After: 30 | 503", after(30)),
        ("map[Retry-After:[12] Server:[x]]", after(12)),
        (r#"{"Retry-After": "15"}"#, after(15)),
        (r#""retry-after":"15","x":1"#, after(15)),
        ("Retry-After: 30s", after(30)),
        ("429 Too Many Requests; Retry-After: 5, please", after(5)),
        ("Retry-After: 5 | Retry-After: 9", after(9)),
        ("Retry-After: 99999999999999999999999", after(u64::MAX)),
        ("Retry-After: 0", UNKNOWN),
        ("Retry-After: -1", UNKNOWN),
        ("Retry-After: soon", UNKNOWN),
        ("Retry-After: Fri, 31 Dec 2027 23:59:59 GMT", UNKNOWN),
        ("Retry-After: 30abc", UNKNOWN),
        ("Retry-After:", UNKNOWN),
    ] {
        assert_eq!(throttling(text, ForeignTexts::default), Some(expected), "{text}");
    }
}

proptest::proptest! {
    #[test]
    fn any_text_is_read(text: String, number: u64) {
        throttling(&text, ForeignTexts::default);
        let header = format!("{text} Retry-After: {number}");
        proptest::prop_assert!(throttling(&header, ForeignTexts::default).is_some());
    }
}
