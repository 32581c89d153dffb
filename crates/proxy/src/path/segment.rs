//! One segment of a path.

use std::borrow::Cow;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::status::Refused;

/// What a serialized segment has encoded. Go's clients leave the same as it is, except `;`, which some programs read as the
/// begin of a parameter.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b'$')
    .remove(b'&')
    .remove(b'+')
    .remove(b',')
    .remove(b':')
    .remove(b'=')
    .remove(b'@');

/// The segment in front of the first slash, and what follows the slash.
pub(super) fn first(path: &str) -> (&str, Option<&str>) {
    path.split_once('/').map_or((path, None), |(segment, rest)| (segment, Some(rest)))
}

/// A segment without percent-encoding.
///
/// # Errors
///
/// It cannot be a segment of a path in Kubernetes (`IsValidPathSegmentName`), or programs read it differently.
pub(super) fn decode(raw: &str) -> Result<String, Refused> {
    check_bytes(raw)?;
    let plain = unescape(raw)?;
    if matches!(&*plain, "." | "..") {
        return Err(Refused::bad_request("the path has a segment `.` or `..`"));
    }
    if plain.contains(['/', '%']) {
        return Err(Refused::bad_request("a segment of the path has an encoded `/` or `%`"));
    }
    Ok(plain)
}

/// A segment, encoded. What [`decode`] reads in it is the same again.
pub(super) fn encode(plain: &str) -> impl Iterator<Item = &str> {
    utf8_percent_encode(plain, ENCODED)
}

/// Bytes that RFC 3986 does not have in a path: programs replace them, each in its own way.
pub(super) fn check_bytes(raw: &str) -> Result<(), Refused> {
    if raw.bytes().all(|byte| is_pchar(byte) || byte == b'/') {
        return Ok(());
    }
    Err(Refused::bad_request("the path has a character that must be percent-encoded"))
}

/// `pchar`, or the `%` of an encoded byte.
pub(super) fn is_pchar(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@%".contains(&byte)
}

/// Decodes a path, or a part of it, once.
pub(super) fn unescape(raw: &str) -> Result<String, Refused> {
    if !has_valid_escapes(raw) {
        return Err(Refused::bad_request("the path has a `%` without two hexadecimal digits behind it"));
    }
    let plain = percent_encoding::percent_decode_str(raw).decode_utf8().map(Cow::into_owned);
    without_controls(plain.map_err(|_invalid| Refused::bad_request("the path is not UTF-8"))?)
}

/// `plain`, if it has no control character.
pub(super) fn without_controls(plain: String) -> Result<String, Refused> {
    if plain.contains(char::is_control) {
        return Err(Refused::bad_request("the path has a control character"));
    }
    Ok(plain)
}

/// Whether two hexadecimal digits follow each `%`.
pub(super) fn has_valid_escapes(raw: &str) -> bool {
    let digits = |rest: &str| {
        rest.as_bytes().first_chunk::<2>().is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    };
    raw.split('%').skip(1).all(digits)
}
