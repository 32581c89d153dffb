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
    let (month, day) = (small(month)?, small(day)?);
    let (hour, minute, second) = (small(hour)?, small(minute)?, small(second)?);
    let civil = DateTime::new(year, month, day, hour, minute, second, nanoseconds).ok()?;
    let since_epoch = civil.duration_since(DateTime::constant(1970, 1, 1, 0, 0, 0, 0));
    shift(SystemTime::UNIX_EPOCH, since_epoch.is_negative(), since_epoch.unsigned_abs())
        .and_then(|local| offset(local, zone))
}

/// `time` in UTC with whole seconds. A time after the year 9999 is its last second.
pub fn rfc3339(time: SystemTime) -> String {
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

/// `time` in that direction by that much; `None`: no clock can count it.
pub(super) fn shift(time: SystemTime, back: bool, by: Duration) -> Option<SystemTime> {
    if back { time.checked_sub(by) } else { time.checked_add(by) }
}

#[cfg(test)]
mod tests;
