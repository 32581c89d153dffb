use super::super::*;

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
    assert_eq!(dated(at(3000, 7), at(0, 0), "expired"), "2027-01-15T08:50:00Z (in 50m)");
}
