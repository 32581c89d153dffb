//! When a certificate expires: only as much of X.509 as leads there.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

const INTEGER: u8 = 0x02;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const SEQUENCE: u8 = 0x30;
/// `[0]`, of the version.
const VERSION: u8 = 0xa0;

/// The `NotAfter` of a certificate in DER. `None`: it cannot be read.
pub(super) fn not_after(certificate: &[u8]) -> Option<SystemTime> {
    let (certificate, _) = item(certificate, SEQUENCE)?;
    let (mut fields, _) = item(certificate, SEQUENCE)?;
    if let Some((_, rest)) = item(fields, VERSION) {
        fields = rest;
    }
    // Serial number, signature algorithm and issuer.
    for tag in [INTEGER, SEQUENCE, SEQUENCE] {
        fields = item(fields, tag)?.1;
    }
    let (validity, _) = item(fields, SEQUENCE)?;
    let (_, after) = time(validity)?;
    let (seconds, _) = time(after)?;
    Some(UNIX_EPOCH + Duration::from_secs(seconds))
}

/// The content of the item with this tag, and what follows it.
fn item(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (first, rest) = der.split_first()?;
    if *first != tag {
        return None;
    }
    let (length, rest) = rest.split_first()?;
    let (length, rest) = match length {
        0..=0x7f => (usize::from(*length), rest),
        // The number of bytes that have the length: four are enough.
        0x81..=0x84 => {
            let (bytes, rest) = rest.split_at_checked(usize::from(length & 0x7f))?;
            (bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), rest)
        }
        _ => return None,
    };
    rest.split_at_checked(length)
}

/// Seconds since the epoch, and what follows the time. 0 for a time before.
fn time(der: &[u8]) -> Option<(u64, &[u8])> {
    let (year, digits, rest) = if let Some((text, rest)) = item(der, UTC_TIME) {
        let (year, digits) = text.split_at_checked(2)?;
        let year = number(year)?;
        (if year < 50 { 2000 + year } else { 1900 + year }, digits, rest)
    } else {
        let (text, rest) = item(der, GENERALIZED_TIME)?;
        let (year, digits) = text.split_at_checked(4)?;
        (number(year)?, digits, rest)
    };
    let digits = digits.strip_suffix(b"Z").filter(|digits| digits.len() == 10)?;
    let mut parts = digits.chunks(2).map(number);
    let mut next = || parts.next().flatten();
    let (month, day, hours, minutes, seconds) = (next()?, next()?, next()?, next()?, next()?);
    let days = days(year, month, day)?;
    let seconds = ((days * 24 + hours) * 60 + minutes) * 60 + seconds;
    Some((u64::try_from(seconds).unwrap_or_default(), rest))
}

fn number(digits: &[u8]) -> Option<i64> {
    digits.iter().all(u8::is_ascii_digit).then_some(())?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Days since the epoch, of the Gregorian calendar. Years begin in March, so that the leap day is the last one.
fn days(year: i64, month: i64, day: i64) -> Option<i64> {
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let of_month = (153 * month + 2) / 5 + day - 1;
    Some(365 * year + year / 4 - year / 100 + year / 400 + of_month - 719_468)
}

#[cfg(test)]
mod tests {
    use credbroker_test_support::{Accepts, ApiServer};
    use secrecy::ExposeSecret as _;

    use super::*;
    use crate::tls::pem;

    #[test]
    fn the_end_of_a_certificate_is_read() {
        let api = ApiServer::start(Accepts::Certificates);
        let now = crate::clock::system().wall;
        let (chain, _) = api.issue_client_certificate("jane", Duration::from_secs(3600));
        let der = pem::blocks(chain.as_bytes(), pem::is_certificate).next().unwrap();
        let end = not_after(der.expose_secret()).unwrap();
        let left = end.duration_since(now).unwrap();
        assert!(left.abs_diff(Duration::from_secs(3600)) < Duration::from_secs(120), "{left:?}");
        for length in 0..der.expose_secret().len() {
            assert!(not_after(&der.expose_secret()[..length]).is_none_or(|cut| cut == end), "{length}");
        }
    }

    #[test]
    fn both_forms_of_a_time_are_read() {
        let read = |tag: u8, text: &str| {
            let length = u8::try_from(text.len()).unwrap();
            time(&[&[tag, length], text.as_bytes()].concat()).map(|(seconds, _)| seconds)
        };
        assert_eq!(read(UTC_TIME, "700101000000Z"), Some(0));
        assert_eq!(read(UTC_TIME, "491231235959Z"), Some(2_524_607_999));
        assert_eq!(read(GENERALIZED_TIME, "20240229120000Z"), Some(1_709_208_000));
        assert_eq!(read(GENERALIZED_TIME, "20260301000000Z"), Some(1_772_323_200));
        assert_eq!(read(GENERALIZED_TIME, "99991231235959Z"), Some(253_402_300_799));
        assert_eq!(read(UTC_TIME, "500101000000Z"), Some(0), "1950");
        for broken in ["", "7001010000Z", "701301000000Z", "7001010000xxZ", "700101000000"] {
            assert_eq!(read(UTC_TIME, broken), None, "{broken}");
        }
    }
}
