//! The value of `--timeout`.

use std::{ops::RangeInclusive, time::Duration};

use credbroker_units::duration::{DurationError, parse_within};

const BOUNDS: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(24 * 3600);

/// Parses a duration such as `500ms`, `10s` or `1h30m`, from a millisecond to 24 hours.
pub fn timeout(text: &str) -> Result<Duration, DurationError> {
    parse_within(text, BOUNDS)
}
