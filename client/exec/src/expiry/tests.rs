use proptest::prelude::*;

use super::*;

const NOW: i64 = 1_800_000_000;

fn at(millis: i64) -> SystemTime {
    let distance = Duration::from_millis(millis.unsigned_abs());
    if millis < 0 { UNIX_EPOCH - distance } else { UNIX_EPOCH + distance }
}

/// The expiry for clients in seconds from `NOW`, for one in `left` and a lifetime, both in milliseconds.
fn shown_seconds(left: i64, lifetime: Option<u64>) -> i64 {
    let lifetime = lifetime.map(Duration::from_millis);
    expiration_for_client(Some(at(NOW * 1000 + left)), lifetime, at(NOW * 1000)).unwrap().seconds - NOW
}

#[test]
fn the_margin_is_a_tenth_of_the_lifetime_and_at_most_thirty_seconds() {
    for (left, lifetime, expected) in [
        (3_600_000, Some(3_600_000), 3570), // an hour: 30 s
        (840_000, Some(840_000), 810),      // EKS
        (60_000, Some(60_000), 54),         // a minute: 6 s
        (20_000, Some(20_000), 18),
        (60_000, None, 54),              // without a lifetime, a tenth of the remaining time
        (300_000, Some(3_600_000), 270), // the margin stays the same
        (35_000, Some(3_600_000), 10),   // at least ten seconds of use
        (10_000, Some(3_600_000), 10),
        (5_000, Some(3_600_000), 5), // but not more than it has
        (5_900, Some(3_600_000), 5), // whole seconds, rounded down
        (900, Some(3_600_000), 1),   // never in the past
        (0, Some(3_600_000), 10),    // expired: ten seconds
        (-60_000, Some(3_600_000), 10),
        (3_600_000, Some(0), 3600),
    ] {
        assert_eq!(shown_seconds(left, lifetime), expected, "{left} {lifetime:?}");
    }
}

#[test]
fn an_unknown_expiry_stays_unknown_and_a_far_one_is_the_last_time_of_rfc_3339() {
    assert_eq!(expiration_for_client(None, None, at(0)), None);
    let far = UNIX_EPOCH + Duration::new(i64::MAX.unsigned_abs(), 999_999_999);
    let expiration_for_client = expiration_for_client(Some(far), None, at(NOW * 1000)).unwrap();
    assert_eq!(expiration_for_client.to_string(), "9999-12-31T23:59:59Z");
}

proptest! {
    #[test]
    fn the_expiry_shown_is_after_now_and_at_most_a_second_past_the_end(
        now in 0..NOW * 2000,
        left in prop_oneof![-400_000_i64..100_000_000, -20_000_i64..20_000, -1500_i64..1500],
        lifetime in proptest::option::of(0_u64..100_000),
    ) {
        let lifetime = lifetime.map(Duration::from_secs);
        let expiration_for_client = expiration_for_client(Some(at(now + left)), lifetime, at(now)).unwrap();
        prop_assert_eq!(expiration_for_client.nanos, 0);
        let from_now = expiration_for_client.seconds * 1000 - now;
        prop_assert!(from_now > 0, "{} ms from now", from_now);
        let bound = if left <= 0 { 10_000 } else { left.max(1000) };
        prop_assert!(from_now <= bound, "{} ms from now, {} left", from_now, left);
        prop_assert!(from_now > left.min(9_000) - 30_000 - 1000);
    }
}
