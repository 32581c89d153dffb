use proptest::prelude::*;

use super::*;
use crate::{ClientPair, Material, Sha256, Token, Validity};

const NOW: u64 = 1_784_888_430;

fn time(offset: i64) -> SystemTime {
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(NOW);
    let distance = Duration::from_secs(offset.unsigned_abs());
    if offset < 0 { now - distance } else { now + distance }
}

/// Offsets from now: `expirationTimestamp`, `NotAfter`, JWT `exp`.
fn decoded(status: Option<i64>, certificate: Option<i64>, token: Option<i64>) -> Decoded {
    let pair = certificate.map(|offset| ClientPair {
        chain_pem: Vec::new().into(),
        key_pem: Vec::new().into(),
        fingerprint: Sha256([0; 32]),
        validity: Validity { from: SystemTime::UNIX_EPOCH, to: time(offset) },
    });
    let token = Some(Token { secret: "t".into(), expires_at: token.map(time) });
    Decoded { material: Material { token, pair }, expires_at: status.map(time), warnings: Vec::new() }
}

fn limits(max_age: Option<u64>) -> LifetimeLimits {
    LifetimeLimits {
        max_age: max_age.map(Duration::from_secs),
        unknown_expiry_max_age: Duration::from_secs(600),
    }
}

#[test]
fn the_earliest_expiry_is_used_and_named() {
    use LifetimeBound::{ExpirationTimestamp, MaxAge, NotAfter, TokenExp, UnknownExpiry};
    for (status, certificate, token, max_age, expected, bound) in [
        (Some(3600), None, None, None, 3600, ExpirationTimestamp),
        (Some(3600), Some(1800), None, None, 1800, NotAfter),
        (Some(3600), Some(1800), Some(900), None, 900, TokenExp),
        (Some(3600), Some(1800), Some(900), Some(60), 60, MaxAge),
        (Some(60), Some(1800), Some(900), Some(3600), 60, ExpirationTimestamp),
        (Some(60), Some(60), Some(60), Some(60), 60, ExpirationTimestamp),
        (None, Some(86_400), None, None, 86_400, NotAfter),
        (None, None, Some(5000), None, 5000, TokenExp),
        (None, None, None, None, 600, UnknownExpiry),
        (None, None, None, Some(3600), 600, UnknownExpiry),
        (None, None, None, Some(60), 60, MaxAge),
        (Some(1), None, None, None, 1, ExpirationTimestamp),
    ] {
        let lifetime = lifetime(&decoded(status, certificate, token), limits(max_age), time(0)).unwrap();
        let expected = Lifetime { expires_at: time(expected), within_skew: false, bound };
        assert_eq!(lifetime, expected, "{status:?} {certificate:?} {token:?} {max_age:?}");
    }
}

#[test]
fn a_credential_that_expired_within_five_minutes_is_valid_for_ten_seconds() {
    for (status, certificate, token) in [
        (Some(0), None, None),
        (Some(-1), None, None),
        (Some(-300), Some(3600), Some(3600)),
        (Some(3600), Some(-300), None),
        (Some(3600), Some(0), None),
        (None, None, Some(-299)),
    ] {
        let decoded = decoded(status, certificate, token);
        let expected = Lifetime { expires_at: time(10), within_skew: true, bound: LifetimeBound::ClockSkew };
        assert_eq!(lifetime(&decoded, limits(None), time(0)), Ok(expected));
        let expected = Lifetime { expires_at: time(5), within_skew: true, bound: LifetimeBound::MaxAge };
        assert_eq!(lifetime(&decoded, limits(Some(5)), time(0)), Ok(expected));
    }
}

#[test]
fn a_credential_that_expired_earlier_is_refused_and_the_error_names_an_expired_certificate() {
    let certificate = |ago| Err(LifetimeError::Certificate(Duration::from_secs(ago)));
    let credential = |ago| Err(LifetimeError::Credential(Duration::from_secs(ago)));
    for (status, not_after, token, expected) in [
        (Some(-301), None, None, credential(301)),
        (None, None, Some(-301), credential(301)),
        (Some(-9000), Some(-301), None, certificate(301)),
        (Some(3600), Some(-301), None, certificate(301)),
        (Some(-301), Some(-100), None, credential(301)),
        (Some(-301), Some(100), None, credential(301)),
    ] {
        assert_eq!(lifetime(&decoded(status, not_after, token), limits(None), time(0)), expected);
    }
    let late = time(0) + Duration::from_millis(301_999);
    let error = lifetime(&decoded(Some(0), None, None), limits(None), late).unwrap_err();
    assert!(error.to_string().starts_with("the credential expired 301s before"), "{error}");
}

#[test]
fn the_longest_duration_does_not_overflow() {
    let endless = LifetimeLimits { max_age: Some(Duration::MAX), unknown_expiry_max_age: Duration::MAX };
    let lifetime = lifetime(&decoded(None, None, None), endless, time(0)).unwrap();
    assert!(lifetime.expires_at > time(86_400 * 365));
}

proptest! {
    #[test]
    fn the_expiry_is_in_the_future_and_not_after_any_limit(
        status in prop::option::of(-1000..100_000_i64),
        certificate in prop::option::of(-1000..100_000_i64),
        token in prop::option::of(-1000..100_000_i64),
        max_age in prop::option::of(1..100_000_u64),
        nanoseconds in 0..1_000_000_000_u64,
    ) {
        let now = time(0) + Duration::from_nanos(nanoseconds);
        let decoded = decoded(status, certificate, token);
        if let Ok(lifetime) = lifetime(&decoded, limits(max_age), now) {
            prop_assert!(lifetime.expires_at > now);
            let grace = now + Duration::from_secs(10);
            prop_assert!(!lifetime.within_skew || lifetime.expires_at <= grace);
            for bound in [status, certificate, token].into_iter().flatten().map(time) {
                prop_assert!(lifetime.within_skew || lifetime.expires_at <= bound);
            }
            if let Some(age) = max_age {
                prop_assert!(lifetime.expires_at <= now + Duration::from_secs(age));
            }
            if (status, certificate, token) == (None, None, None) {
                prop_assert!(lifetime.expires_at <= now + Duration::from_secs(600));
            }
        }
    }
}

#[test]
fn a_certificate_may_begin_within_five_minutes() {
    for (ahead, expected) in [
        (-1, Ok(time(3600))),
        (300, Ok(time(3600))),
        (301, Err(LifetimeError::NotYetValid(Duration::from_secs(301)))),
    ] {
        let mut decoded = decoded(None, Some(3600), None);
        decoded.material.pair.as_mut().unwrap().validity.from = time(ahead);
        let found = lifetime(&decoded, limits(None), time(0)).map(|lifetime| lifetime.expires_at);
        assert_eq!(found, expected, "{ahead}");
    }
}
