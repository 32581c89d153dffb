//! RFC 3339 timestamps as metav1.Time reads them.

use std::time::{Duration, SystemTime};

use jiff::{Timestamp, civil::DateTime};

/// Seconds from the zero time of Go, `0001-01-01T00:00:00Z`, to the epoch.
const ZERO_BEFORE_EPOCH: u64 = 62_135_596_800;

/// Parses a time with an upper-case `T`, then `Z` or `±hh:mm`, and an optional fraction after `.` or `,`.
///
/// jiff is not used because it refuses the year 9999 with a zone, and accepts a space, lower case, `+0200` and second 60.
pub(super) fn parse(text: &str) -> Option<SystemTime> {
    let (date, time) = text.split_once('T')?;
    let (year, month, day) = match date.as_bytes() {
        [y0, y1, y2, y3, b'-', m0, m1, b'-', d0, d1] => {
            (pair(*y0, *y1)? * 100 + pair(*y2, *y3)?, pair(*m0, *m1)?, pair(*d0, *d1)?)
        }
        _ => return None,
    };
    let (hour, minute, second, rest) = match time.as_bytes() {
        [h0, h1, b':', m0, m1, b':', s0, s1, rest @ ..] => {
            (pair(*h0, *h1)?, pair(*m0, *m1)?, pair(*s0, *s1)?, rest)
        }
        _ => return None,
    };
    let (nanoseconds, zone) = fraction(rest)?;
    let small = |value| i8::try_from(value).ok();
    let civil = DateTime::new(
        year,
        small(month)?,
        small(day)?,
        small(hour)?,
        small(minute)?,
        small(second)?,
        nanoseconds,
    )
    .ok()?;
    let since_epoch = civil.duration_since(DateTime::constant(1970, 1, 1, 0, 0, 0, 0));
    shift(SystemTime::UNIX_EPOCH, since_epoch.is_negative(), since_epoch.unsigned_abs())
        .and_then(|local| offset(local, zone))
}

/// `time` in UTC with whole seconds. A time after the year 9999 is its last second.
pub(crate) fn rfc3339(time: SystemTime) -> String {
    let seconds = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    let time = i64::try_from(seconds).ok().and_then(|seconds| Timestamp::from_second(seconds).ok());
    time.unwrap_or(Timestamp::MAX).strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Whether this is the zero time of Go, which means no time.
pub(super) fn is_zero(time: SystemTime) -> bool {
    shift(SystemTime::UNIX_EPOCH, true, Duration::from_secs(ZERO_BEFORE_EPOCH)) == Some(time)
}

fn pair(tens: u8, ones: u8) -> Option<i16> {
    let digit = |byte: u8| byte.is_ascii_digit().then(|| i16::from(byte - b'0'));
    Some(digit(tens)? * 10 + digit(ones)?)
}

/// The nanoseconds, and the text after the fraction. Further digits are dropped.
fn fraction(rest: &[u8]) -> Option<(i32, &[u8])> {
    let [b'.' | b',', tail @ ..] = rest else { return Some((0, rest)) };
    let length = tail.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (digits, zone) = tail.split_at_checked(length).filter(|(digits, _)| !digits.is_empty())?;
    let nine = digits.iter().chain(std::iter::repeat(&b'0')).take(9);
    Some((nine.fold(0, |value, digit| value * 10 + i32::from(digit - b'0')), zone))
}

fn offset(local: SystemTime, zone: &[u8]) -> Option<SystemTime> {
    match zone {
        b"Z" => Some(local),
        [sign @ (b'+' | b'-'), h0, h1, b':', m0, m1] => {
            let (hours, minutes) = (pair(*h0, *h1)?, pair(*m0, *m1)?);
            let minutes = u64::try_from(hours * 60 + minutes).ok().filter(|_| hours < 24 && minutes < 60)?;
            shift(local, *sign == b'+', Duration::from_secs(minutes * 60))
        }
        _ => None,
    }
}

fn shift(time: SystemTime, back: bool, by: Duration) -> Option<SystemTime> {
    if back { time.checked_sub(by) } else { time.checked_add(by) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_shown_is_read_again() {
        for text in ["1970-01-01T00:00:00Z", "2026-02-28T23:59:59Z", "9999-12-30T22:00:00Z"] {
            assert_eq!(rfc3339(parse(text).unwrap()), text);
        }
        let fraction = SystemTime::UNIX_EPOCH + Duration::from_millis(1999);
        assert_eq!(rfc3339(fraction), "1970-01-01T00:00:01Z");
    }

    fn seconds(text: &str) -> Option<f64> {
        let time = parse(text)?;
        Some(match time.duration_since(SystemTime::UNIX_EPOCH) {
            Ok(after) => after.as_secs_f64(),
            Err(before) => -before.duration().as_secs_f64(),
        })
    }

    #[test]
    fn what_client_go_takes_is_taken() {
        for (text, expected) in [
            ("1970-01-01T00:00:00Z", 0.0),
            ("2026-07-24T10:20:30Z", 1_784_888_430.0),
            ("2026-07-24T10:20:30+02:00", 1_784_881_230.0),
            ("2026-07-24T10:20:30-23:59", 1_784_974_770.0),
            ("2026-07-24T10:20:30+00:00", 1_784_888_430.0),
            ("2026-07-24T10:20:30-00:00", 1_784_888_430.0),
            ("2026-07-24T10:20:30.5Z", 1_784_888_430.5),
            ("2026-07-24T10:20:30,25+00:00", 1_784_888_430.25),
            ("1970-01-01T00:00:00.000000001999999999999999999Z", 1e-9),
            ("2024-02-29T00:00:00Z", 1_709_164_800.0),
            ("9999-12-31T23:59:59Z", 253_402_300_799.0),
            ("9999-12-31T23:59:59-23:59", 253_402_387_139.0),
            ("1969-12-31T23:59:59.5Z", -0.5),
            ("0000-01-01T00:00:00Z", -62_167_219_200.0),
        ] {
            assert_eq!(seconds(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn nothing_else_is_taken() {
        for text in [
            "",
            " ",
            "2026-07-24",
            "2026-07-24T10:20:30",
            "2026-07-24T10:20Z",
            "2026-07-24T10:20:30+0200",
            "2026-07-24T10:20:30+02",
            "2026-07-24t10:20:30Z",
            "2026-07-24T10:20:30z",
            "2026-07-24 10:20:30Z",
            "1784888430",
            "2026-07-24T10:20:60Z",
            "2026-07-24T24:00:00Z",
            "2026-07-24T10:60:00Z",
            "2026-06-31T00:00:00Z",
            "2026-02-29T00:00:00Z",
            "2100-02-29T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-00-01T00:00:00Z",
            "2026-01-00T00:00:00Z",
            "2026-07-24T10:20:30+24:00",
            "2026-07-24T10:20:30+02:60",
            "2026-07-24T10:20:30.Z",
            "2026-07-24T10:20:30Z ",
            " 2026-07-24T10:20:30Z",
            "2026-07-24T1:20:30Z",
            "26-07-24T10:20:30Z",
            "12026-07-24T10:20:30Z",
            "-026-07-24T10:20:30Z",
            "2026-7-24T10:20:30Z",
            "2026-07-24T10:20:30ZZ",
            "2026-07-24T10:20:30.5.5Z",
            "2026-07-24T10:20:30 Z",
            "2026-07-24T10:20:30UTC",
            "2026-07-24T10:20:3\u{661}Z",
            "2026-07-24T10:20:30\u{2212}02:00",
            "+2026-07-24T10:20:30Z",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn the_zero_time_of_go_is_known_in_every_spelling() {
        for text in ["0001-01-01T00:00:00Z", "0001-01-01T00:00:00.000Z", "0001-01-01T01:00:00+01:00"] {
            assert!(is_zero(parse(text).unwrap()), "{text}");
        }
        assert!(!is_zero(parse("0001-01-01T00:00:01Z").unwrap()) && !is_zero(SystemTime::UNIX_EPOCH));
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "[0-9TZ:.,+-]{0,40}|\\PC{0,30}") {
            prop_assert!(parse(&text).is_none() || text.len() >= "2026-07-24T10:20:30Z".len());
        }

        #[test]
        fn it_agrees_with_jiff_where_jiff_is_right(second in -62_135_596_800_i64..253_402_207_200) {
            let text = Timestamp::from_second(second).unwrap().to_string();
            let expected = shift(SystemTime::UNIX_EPOCH, second < 0, Duration::from_secs(second.unsigned_abs()));
            prop_assert_eq!(parse(&text), expected);
        }
    }
}
