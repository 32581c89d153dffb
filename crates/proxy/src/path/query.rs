//! The query of a request to the API server itself.

use credbroker_request_info::Query;

use super::segment;
use crate::status::Refused;

/// Parameters of which the API server uses the first, and other programs the last.
const SINGLE: [&str; 8] = [
    "watch",
    "dryRun",
    "fieldSelector",
    "labelSelector",
    "resourceVersion",
    "limit",
    "continue",
    "timeoutSeconds",
];

/// Refuses what programs read differently. The rest is forwarded as it is.
pub(super) fn check(query: &str) -> Result<(), Refused> {
    if !query.bytes().all(|byte| segment::is_pchar(byte) || matches!(byte, b'/' | b'?')) {
        return Err(Refused::bad_request("the query has a character that must be percent-encoded"));
    }
    // Go leaves such pairs out, without an error.
    if query.contains(';') {
        return Err(Refused::bad_request("the query has a `;`, which must be percent-encoded"));
    }
    if !segment::has_valid_escapes(query) {
        return Err(Refused::bad_request("the query has a `%` without two hexadecimal digits behind it"));
    }
    let parsed = Query::of(query);
    for name in SINGLE {
        if parsed.count(name) > 1 {
            return Err(Refused::bad_request(format!("the query has `{name}` more than once")));
        }
    }
    // Old clients in Python (29, for example) send `True`. Other text is true for the API server, and may be false for others.
    let is_watch_clear = |value: &[u8]| {
        matches!(value, b"" | b"0" | b"1")
            || [b"true".as_slice(), b"false"].iter().any(|it| value.eq_ignore_ascii_case(it))
    };
    if !parsed.first("watch").is_none_or(is_watch_clear) {
        return Err(Refused::bad_request("`watch` must be `true` or `false`"));
    }
    Ok(())
}
