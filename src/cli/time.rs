//! Times: RFC 3339 in whole seconds for programs, and how far away they are for people.

use std::time::{Duration, SystemTime};

use prost_types::Timestamp;

/// `2026-11-20T10:00:00Z`: the only format of times in JSON.
pub(super) fn rfc3339(at: SystemTime) -> String {
    Timestamp { nanos: 0, ..Timestamp::from(at) }.to_string()
}

/// `42m`: one unit, and at least two digits of precision for what is soon.
pub(super) fn span(span: Duration) -> String {
    match span.as_secs() {
        secs @ 0..120 => format!("{secs}s"),
        secs @ 120..7200 => format!("{}m", secs / 60),
        secs @ 7200..172_800 => format!("{}h", secs / 3600),
        secs => format!("{}d", secs / 86_400),
    }
}

/// `in 42m`, or `past` if `at` is not after `now`.
pub(super) fn ahead(at: SystemTime, now: SystemTime, past: &str) -> String {
    // Whole seconds, so that what is printed as the same second is not in the future.
    let whole = |at: SystemTime| at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    match whole(at).saturating_sub(whole(now)) {
        0 => past.to_owned(),
        left => format!("in {}", span(Duration::from_secs(left))),
    }
}

/// `2026-11-20T10:00:00Z (in 42m)`.
pub(super) fn expiry(at: SystemTime, now: SystemTime) -> String {
    format!("{} ({})", rfc3339(at), ahead(at, now, "expired"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u64, nanos: u32) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::new(1_800_000_000 + secs, nanos)
    }

    #[test]
    fn a_time_in_json_has_whole_seconds() {
        assert_eq!(rfc3339(at(0, 0)), "2027-01-15T08:00:00Z");
        assert_eq!(rfc3339(at(0, 999_999_999)), "2027-01-15T08:00:00Z");
    }

    #[test]
    fn the_remaining_time_has_one_unit() {
        for (left, expected) in
            [(0, "expired"), (90, "in 90s"), (3600, "in 60m"), (86_400, "in 24h"), (1_000_000, "in 11d")]
        {
            assert_eq!(ahead(at(left, 0), at(0, 0), "expired"), expected, "{left}");
        }
        assert_eq!(ahead(at(0, 0), at(5, 0), "expired"), "expired");
        assert_eq!(expiry(at(3000, 7), at(0, 0)), "2027-01-15T08:50:00Z (in 50m)");
    }
}
