//! The value of `--timeout`.

use std::time::Duration;

const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// Parses `500ms`, `2s`, `5m`, `1h`, or a number of seconds; more than 0 and at most 24 hours.
pub fn duration(text: &str) -> Option<Duration> {
    let unit_at = text.find(|character: char| character.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_at);
    let seconds = match unit {
        "ms" => 1e-3,
        "s" | "" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return None,
    };
    let number: f64 = number.parse().ok()?;
    let duration = Duration::try_from_secs_f64(number * seconds).ok()?;
    (!duration.is_zero() && duration <= LONGEST).then_some(duration)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_has_a_unit_or_is_in_seconds() {
        for (text, milliseconds) in
            [("500ms", 500), ("2s", 2000), ("2", 2000), ("0.5", 500), ("1.5m", 90_000), ("24h", 86_400_000)]
        {
            assert_eq!(duration(text), Some(Duration::from_millis(milliseconds)), "{text}");
        }
    }

    #[test]
    fn other_texts_are_not_durations() {
        for text in ["", "s", "0", "0ms", "-1s", "1d", "1 s", "s1", "25h", "86401", "inf", "nan", "1s2", "1S"]
        {
            assert_eq!(duration(text), None, "{text:?}");
        }
    }
}
