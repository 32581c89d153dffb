use super::*;

const TARGET: &str = "/clusters/fleet/prod";
const END: u64 = 2_000_000_000;

fn key() -> HandleKey {
    HandleKey::new(&[7; KEY])
}

fn claims(rule: Option<&str>) -> Claims {
    Claims { uid: 1500, rule: rule.map(Into::into), expires: END }
}

fn at(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(seconds)
}

fn check(handle: &str, target: &str, now: u64) -> Result<Claims, HandleError> {
    key().check(&handle.to_owned().into(), target, at(now))
}

fn issued(rule: Option<&str>) -> String {
    key().issue(&claims(rule), TARGET).expose_secret().to_owned()
}

#[test]
fn a_handle_says_who_may_use_which_target_until_when() {
    for rule in [None, Some(""), Some("agents"), Some("=a\u{e4}")] {
        let handle = issued(rule);
        assert_eq!(check(&handle, TARGET, 0), Ok(claims(rule)));
        assert_eq!(check(&handle, TARGET, END - 1), Ok(claims(rule)));
        assert_eq!(check(&handle, TARGET, END), Err(HandleError::Expired));
        assert!(handle.is_ascii() && !handle.contains(char::is_whitespace));
    }
}

#[test]
fn another_target_or_key_has_other_handles() {
    let handle = issued(Some("agents"));
    for target in ["", "/clusters/fleet/prod2", "/clusters/fleet/pro", "/contexts/prod-0123456789ab"] {
        assert_eq!(check(&handle, target, 0), Err(HandleError::Foreign), "{target}");
    }
    let other = HandleKey::new(&[8; KEY]);
    assert_eq!(other.check(&handle.into(), TARGET, at(0)), Err(HandleError::Foreign));
}

#[test]
fn what_a_handle_says_cannot_become_a_part_of_the_target() {
    // With the rule `a`, for a target that begins with `b`; and with the rule `ab`.
    let one = key().issue(&claims(Some("a")), "b/x");
    let whole = URL_SAFE_NO_PAD.decode(one.expose_secret().strip_prefix(PREFIX).unwrap()).unwrap();
    let (said, signature) = whole.split_last_chunk::<SIGNATURE>().unwrap();
    let moved = URL_SAFE_NO_PAD.encode([said, b"b", signature].concat());
    assert_eq!(check(&format!("{PREFIX}{moved}"), "/x", 0), Err(HandleError::Foreign));
}

#[test]
fn a_handle_of_which_any_bit_is_changed_or_missing_is_foreign() {
    let handle = issued(Some("agents"));
    let whole = URL_SAFE_NO_PAD.decode(handle.strip_prefix(PREFIX).unwrap()).unwrap();
    for at in 0..whole.len() * 8 {
        let mut forged = whole.clone();
        forged[at / 8] ^= 1 << (at % 8);
        let forged = format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(forged));
        assert_eq!(check(&forged, TARGET, 0), Err(HandleError::Foreign), "bit {at}");
    }
    for length in 0..whole.len() {
        for part in [&whole[..length], &whole[whole.len() - length..]] {
            let short = format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(part));
            assert_eq!(check(&short, TARGET, 0), Err(HandleError::Foreign), "{length} bytes");
        }
    }
    for text in ["", PREFIX, "a token", &handle[1..], &format!("{handle}="), &format!("{handle} ")] {
        assert_eq!(check(text, TARGET, 0), Err(HandleError::Foreign), "{text}");
    }
    assert_eq!(check(&format!("{PREFIX}{}", "A".repeat(1 << 20)), TARGET, 0), Err(HandleError::Foreign));
}

#[test]
fn debug_shows_no_key() {
    assert_eq!(format!("{:?}", key()), "HandleKey");
}
