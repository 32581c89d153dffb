//! The value of `--timeout`.

use std::time::Duration;

const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// Parses `500ms`, `2s`, `5m`, `1h`, or a number of seconds; more than 0 and at most 24 hours.
pub fn duration(text: &str) -> Option<Duration> {
    let unit_at = text.find(|character: char| character.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_at);
    let nanoseconds: u64 = match unit {
        "ms" => 1_000_000,
        "s" | "" => 1_000_000_000,
        "m" => 60 * 1_000_000_000,
        "h" => 3600 * 1_000_000_000,
        _ => return None,
    };
    // Without the tables of floating point, which are a hundredth of the program.
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let parsed = |digits: &str| match digits.len() {
        0 => Some(0),
        1..=9 if digits.bytes().all(|digit| digit.is_ascii_digit()) => digits.parse::<u64>().ok(),
        _ => None,
    };
    let unit_of_fraction =
        nanoseconds / 10_u64.pow(u32::try_from(fraction.len()).ok().filter(|count| *count <= 9)?);
    let whole = parsed(whole)?.checked_mul(nanoseconds)?;
    let duration = Duration::from_nanos(whole.checked_add(parsed(fraction)? * unit_of_fraction)?);
    (!duration.is_zero() && duration <= LONGEST).then_some(duration)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_has_a_unit_or_is_in_seconds() {
        for (text, milliseconds) in [
            ("500ms", 500),
            ("2s", 2000),
            ("2", 2000),
            ("0.5", 500),
            ("1.5m", 90_000),
            ("24h", 86_400_000),
            (".25h", 900_000),
        ] {
            assert_eq!(duration(text), Some(Duration::from_millis(milliseconds)), "{text}");
        }
    }

    #[test]
    fn other_texts_are_not_durations() {
        for text in [
            "",
            "s",
            "0",
            "0ms",
            "-1s",
            "1d",
            "1 s",
            "s1",
            "25h",
            "86401",
            "inf",
            "nan",
            "1s2",
            "1S",
            ".",
            "+1",
            "1.-5",
            "1..5",
            "9999999999s",
            "999999999h",
        ] {
            assert_eq!(duration(text), None, "{text:?}");
        }
    }
}
