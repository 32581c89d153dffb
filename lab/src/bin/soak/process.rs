//! What the broker's process uses.

use std::{fs, path::Path, time::Duration};

use anyhow::{Context as _, Result};
use tokio::time::{Instant, interval_at};

/// Medians of one part of the soak.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Usage {
    /// Resident memory, in KiB.
    pub(crate) resident: u64,
    /// Open file descriptors.
    pub(crate) descriptors: u64,
    /// Threads.
    pub(crate) threads: u64,
}

/// The usage after the start, in the middle, and at the end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Samples {
    pub(crate) start: Usage,
    pub(crate) middle: Usage,
    pub(crate) end: Usage,
}

impl Samples {
    /// Samples the process for `time`, twice a second. `check` is called each time, and ends the soak if it fails.
    pub(crate) async fn of(pid: u32, time: Duration, mut check: impl FnMut() -> Result<()>) -> Result<Self> {
        const EVERY: Duration = Duration::from_millis(500);
        let (start, mut samples) = (Instant::now(), Vec::new());
        let mut ticks = interval_at(start + EVERY, EVERY);
        while start.elapsed() < time {
            ticks.tick().await;
            check()?;
            samples.push(Usage::of(pid)?);
        }
        // The first sixth is the warm-up.
        let sixth = |number: usize| {
            let bounds = [number, number + 1].map(|edge| samples.len() * edge / 6);
            samples.get(bounds[0]..bounds[1]).unwrap_or_default()
        };
        Ok(Self { start: median(sixth(1)), middle: median(sixth(3)), end: median(sixth(5)) })
    }
}

impl Usage {
    fn of(pid: u32) -> Result<Self> {
        let directory = Path::new("/proc").join(pid.to_string());
        let status = fs::read_to_string(directory.join("status"))?;
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|line| line.split_whitespace().next()?.parse().ok())
                .context("a field of the status")
        };
        let descriptors = fs::read_dir(directory.join("fd"))?.count().try_into()?;
        Ok(Self { resident: field("VmRSS:")?, descriptors, threads: field("Threads:")? })
    }
}

fn median(samples: &[Usage]) -> Usage {
    let of = |value: fn(&Usage) -> u64| {
        let mut values: Vec<_> = samples.iter().map(value).collect();
        values.sort_unstable();
        values.get(values.len() / 2).copied().unwrap_or_default()
    };
    Usage {
        resident: of(|usage| usage.resident),
        descriptors: of(|usage| usage.descriptors),
        threads: of(|usage| usage.threads),
    }
}
