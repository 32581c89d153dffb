//! Finds out from the stderr of a failed plugin whether its issuer throttles.
//!
//! `ExecCredential` has no field for that, so the text is the only source. It can only reduce the number of runs.

use std::time::Duration;

/// The words of issuers and plugins for too many requests: AWS, HTTP and Kubernetes, Entra ID, gRPC. They are
/// case-sensitive: client-go's "client-side throttling" is about the API server.
const WORDS: [&str; 6] =
    ["Throttling", "Rate exceeded", "TooManyRequests", "AADSTS90055", "AADSTS50196", "RESOURCE_EXHAUSTED"];
const STATUS: &str = "429";
const RETRY_AFTER: &str = "retry-after";

/// The issuer asked for fewer runs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Throttling {
    /// For how long, if the text names a time; at least one second.
    pub(super) retry_after: Option<Duration>,
}

/// Searches the stderr of a failed plugin for signs of throttling.
pub(super) fn throttling(stderr: &str) -> Option<Throttling> {
    let named = || WORDS.iter().any(|word| occurrences(stderr, word).next().is_some());
    let status = || occurrences(stderr, STATUS).any(|(before, after)| is_status(before, after));
    retry_after(stderr).or_else(|| (named() || status()).then_some(Throttling { retry_after: None }))
}

/// The last `Retry-After: N`. A date, zero, or another value that is not a number of seconds is throttling without a time.
fn retry_after(text: &str) -> Option<Throttling> {
    let text = text.to_ascii_lowercase();
    let values = occurrences(&text, RETRY_AFTER).filter_map(|(_, after)| {
        // As a header, as JSON, or as Go prints headers: `Retry-After:[30]`.
        let value = after.trim_start_matches(['"', '\'', ' ']).strip_prefix(':')?;
        Some(value.trim_start_matches(['"', '\'', ' ', '[']))
    });
    values.last().map(|value| Throttling { retry_after: seconds(value) })
}

/// A whole number of seconds above zero at the start of `text`.
fn seconds(text: &str) -> Option<Duration> {
    let end = text.find(|next: char| !next.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at_checked(end)?;
    if digits.is_empty() || rest.strip_prefix('s').unwrap_or(rest).starts_with(is_part) {
        return None;
    }
    let seconds = digits.parse().unwrap_or(u64::MAX); // too many digits
    (seconds > 0).then(|| Duration::from_secs(seconds))
}

/// Whether a `429` between these texts is a status, and not part of a longer number, of a time (`10:00:00,429`), or of a
/// source location (`token.go:429`, `line 429`).
fn is_status(before: &str, after: &str) -> bool {
    let joins = |character: char| matches!(character, '.' | ',' | ':' | '-');
    let ends_in_digit = |text: &str| text.ends_with(|last: char| last.is_ascii_digit());
    let longer = before.strip_suffix(joins).is_some_and(ends_in_digit)
        || after.strip_prefix(joins).is_some_and(|rest| rest.starts_with(|next: char| next.is_ascii_digit()));
    let last = before.rsplit(char::is_whitespace).next().unwrap_or_default();
    let place = last.strip_suffix(':').is_some_and(|file| file.contains(['.', '/']))
        || before.trim_end().ends_with("line");
    !longer && !place
}

/// The text before and after each occurrence of `word` as a whole word.
fn occurrences<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
    text.match_indices(word).filter_map(move |(at, _)| {
        let (before, rest) = text.split_at_checked(at)?;
        let after = rest.strip_prefix(word)?;
        (!before.ends_with(is_part) && !after.starts_with(is_part)).then_some((before, after))
    })
}

fn is_part(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

#[cfg(test)]
mod tests {
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
            assert_eq!(throttling(text), Some(UNKNOWN), "{text}");
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
            assert_eq!(throttling(text), None, "{text}");
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
            assert_eq!(throttling(text), Some(expected), "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read(text: String, number: u64) {
            throttling(&text);
            let header = format!("{text} Retry-After: {number}");
            proptest::prop_assert!(throttling(&header).is_some());
        }
    }
}
