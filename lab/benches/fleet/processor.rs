//! Processor time of a process.

use std::{fs, time::Duration};

use anyhow::{Context, Result};

/// Linux counts for programs in hundredths of a second.
const TICK: Duration = Duration::from_millis(10);

/// What process `id` itself has used so far, without its children.
pub(crate) fn used(id: u32) -> Result<Duration> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat"))?;
    let (_, fields) = stat.rsplit_once(')').context("a process without a name")?;
    let ticks: u32 =
        fields.split_whitespace().skip(11).take(2).map(str::parse::<u32>).sum::<Result<_, _>>()?;
    Ok(TICK * ticks)
}

/// `used` as percent of one core over `wall`.
pub(crate) fn percent(used: Duration, wall: Duration) -> f64 {
    100.0 * used.as_secs_f64() / wall.as_secs_f64()
}
