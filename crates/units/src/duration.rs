//! Durations as Go's `time.ParseDuration` reads them and as its `Duration.String` writes them.

use std::{fmt::Write as _, ops::RangeInclusive, time::Duration};

use crate::decimal::Decimal;

/// A regular expression for durations above zero, in the dialect of JSON Schema.
pub const PATTERN: &str = "^\\+?(([0-9]+(\\.[0-9]*)?|\\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))*\
     ([0-9]*[1-9][0-9]*(\\.[0-9]*)?|[0-9]*\\.[0-9]*[1-9][0-9]*)(ns|us|µs|μs|ms|s|m|h)\
     (([0-9]+(\\.[0-9]*)?|\\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))*$";

/// The longest duration that Go holds.
const LONGEST: u64 = i64::MAX.unsigned_abs();

const MICROSECOND: u64 = 1_000;
const MILLISECOND: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;

/// Why a text is not a duration. The message never quotes more of it than a number.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum DurationError {
    /// There is no text.
    #[error("it is empty")]
    Empty,
    /// Not numbers with units.
    #[error("expected numbers with units, without spaces")]
    Syntax,
    /// A number without a unit.
    #[error("`{0}` has no unit; for seconds, write `{0}s`")]
    UnitMissing(String),
    /// Not a unit of time.
    #[error("unknown unit; the units are `h`, `m`, `s`, `ms`, `us` and `ns`")]
    UnitUnknown,
    /// Below zero.
    #[error("it is negative")]
    Negative,
    /// More than Go can hold.
    #[error("it is longer than 2562047h47m16.854775807s")]
    TooLong,
    /// Outside the bounds of an option.
    #[error("it must be from {} to {}", text(*.0.start()), text(*.0.end()))]
    OutOfBounds(RangeInclusive<Duration>),
}

/// Parses `1h30m`, `500ms`, `1.5s`, `.5h` or `0`. Digits below a nanosecond are cut off.
pub fn parse(text: &str) -> Result<Duration, DurationError> {
    if text.starts_with('-') {
        return Err(DurationError::Negative);
    }
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    match rest {
        "" => return Err(DurationError::Empty),
        "0" => return Ok(Duration::ZERO),
        _ => {}
    }
    let mut nanoseconds = 0_u64;
    while !rest.is_empty() {
        let (number, after_number) = Decimal::split(rest).ok_or(DurationError::Syntax)?;
        let is_unit = |character: char| !character.is_ascii_digit() && character != '.';
        let unit_end = after_number.find(|character| !is_unit(character)).unwrap_or(after_number.len());
        let (unit, after_unit) = after_number.split_at(unit_end);
        let unit = match unit {
            "" => return Err(DurationError::UnitMissing(number.text.to_owned())),
            "ns" => 1,
            // The micro sign and the Greek letter.
            "us" | "\u{b5}s" | "\u{3bc}s" => MICROSECOND,
            "ms" => MILLISECOND,
            "s" => SECOND,
            "m" => MINUTE,
            "h" => HOUR,
            _ => return Err(DurationError::UnitUnknown),
        };
        let sum = number.times(unit).and_then(|product| nanoseconds.checked_add(product.value));
        nanoseconds = sum.filter(|sum| *sum <= LONGEST).ok_or(DurationError::TooLong)?;
        rest = after_unit;
    }
    Ok(Duration::from_nanos(nanoseconds))
}

/// As [`parse`], for an option with bounds.
pub fn parse_within(text: &str, bounds: RangeInclusive<Duration>) -> Result<Duration, DurationError> {
    let duration = parse(text)?;
    if bounds.contains(&duration) { Ok(duration) } else { Err(DurationError::OutOfBounds(bounds)) }
}

/// As Go writes it, but without zeros at the end: `1h30m` and not `1h30m0s`.
pub fn text(duration: Duration) -> String {
    let mut text = String::new();
    let seconds = duration.as_secs();
    if seconds == 0 {
        match u64::from(duration.subsec_nanos()) {
            0 => text.push_str("0s"),
            small @ ..MICROSECOND => append(&mut text, small, 1, "ns"),
            small @ ..MILLISECOND => append(&mut text, small, MICROSECOND, "\u{b5}s"),
            small => append(&mut text, small, MILLISECOND, "ms"),
        }
        return text;
    }
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    let below_minute = seconds % 60 * SECOND + u64::from(duration.subsec_nanos());
    if hours > 0 {
        append(&mut text, hours, 1, "h");
    }
    if minutes > 0 || (hours > 0 && below_minute > 0) {
        append(&mut text, minutes, 1, "m");
    }
    if below_minute > 0 {
        append(&mut text, below_minute, SECOND, "s");
    }
    text
}

/// Appends `count / unit` without zeros at its end. `unit` is a power of ten.
fn append(text: &mut String, count: u64, unit: u64, name: &str) {
    let _infallible = write!(text, "{}", count / unit);
    let (mut rest, mut unit) = (count % unit, unit);
    if rest > 0 {
        text.push('.');
    }
    while rest > 0 {
        unit /= 10;
        let _infallible = write!(text, "{}", rest / unit);
        rest %= unit;
    }
    text.push_str(name);
}

#[cfg(test)]
mod tests;
