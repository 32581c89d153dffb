//! Finds out from the stderr of a failed plugin whether its issuer throttles.
//!
//! `ExecCredential` has no field for that, so the text is the only source. It can only reduce the number of runs.

use std::time::Duration;

use super::foreign::ForeignTexts;

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

/// Searches the stderr of a failed plugin for signs of throttling, but not what the plugin received from others.
pub(super) fn throttling(stderr: &str, foreign: impl FnOnce() -> ForeignTexts) -> Option<Throttling> {
    find(stderr, stderr)?;
    find(&foreign().masked(stderr), stderr)
}

/// Searches `text`, which is `original` with line breaks in place of some bytes. These end words and numbers, so a sign must
/// be one in the original too.
fn find(text: &str, original: &str) -> Option<Throttling> {
    let named = || WORDS.iter().any(|word| occurrences(text, original, word).next().is_some());
    let status = || occurrences(text, original, STATUS).any(|around| around.into_iter().all(is_status));
    let unknown = || (named() || status()).then_some(Throttling { retry_after: None });
    retry_after(text, original).or_else(unknown)
}

/// The last `Retry-After: N`. A date, zero, or another value that is not a number of seconds is throttling without a time.
fn retry_after(text: &str, original: &str) -> Option<Throttling> {
    let (text, original) = (text.to_ascii_lowercase(), original.to_ascii_lowercase());
    let values = occurrences(&text, &original, RETRY_AFTER).filter_map(|[(_, after), _]| {
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
fn is_status((before, after): (&str, &str)) -> bool {
    let joins = |character: char| matches!(character, '.' | ',' | ':' | '-');
    let ends_in_digit = |text: &str| text.ends_with(|last: char| last.is_ascii_digit());
    let longer = before.strip_suffix(joins).is_some_and(ends_in_digit)
        || after.strip_prefix(joins).is_some_and(|rest| rest.starts_with(|next: char| next.is_ascii_digit()));
    let last = before.rsplit(char::is_whitespace).next().unwrap_or_default();
    let place = last.strip_suffix(':').is_some_and(|file| file.contains(['.', '/']))
        || before.trim_end().ends_with("line");
    !longer && !place
}

/// The text before and after each occurrence of `word` as a whole word, in `text` and in `original` alike.
fn occurrences<'a>(
    text: &'a str,
    original: &'a str,
    word: &'a str,
) -> impl Iterator<Item = [(&'a str, &'a str); 2]> {
    text.match_indices(word).filter_map(move |(at, _)| {
        let around = |text: &'a str| {
            let (before, rest) = text.split_at_checked(at)?;
            let after = rest.strip_prefix(word)?;
            (!before.ends_with(is_part) && !after.starts_with(is_part)).then_some((before, after))
        };
        Some([around(text)?, around(original)?])
    })
}

fn is_part(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

#[cfg(test)]
mod tests;
