//! What was written, what was seen, and how long it took from one to the other.

use std::{
    collections::HashMap,
    time::{Duration, SystemTime},
};

use anyhow::{Result, ensure};
use credbroker_lab::report::percentile;

/// A profile was changed, or seen as it is after a change. A later number shows all changes before it.
#[derive(Clone, Debug)]
pub(crate) struct Note {
    pub(crate) profile: String,
    pub(crate) number: u64,
    pub(crate) at: SystemTime,
}

/// From each change to the first sight of it or of a later one of the same profile, sorted. Fails if one was not seen.
pub(crate) fn latencies<'a>(
    written: impl IntoIterator<Item = &'a Note>,
    seen: &[Note],
) -> Result<Vec<Duration>> {
    let mut sights: HashMap<&str, Vec<&Note>> = HashMap::new();
    for sight in seen {
        sights.entry(&sight.profile).or_default().push(sight);
    }
    let (mut took, mut lost) = (Vec::new(), 0);
    for change in written {
        let sights = sights.get(change.profile.as_str());
        let sight = sights.and_then(|sights| sights.iter().find(|sight| sight.number >= change.number));
        match sight {
            Some(sight) => took.push(sight.at.duration_since(change.at).unwrap_or_default()),
            None => lost += 1,
        }
    }
    ensure!(lost == 0, "{lost} of {} changes were never seen", lost + took.len());
    took.sort_unstable();
    Ok(took)
}

/// p50 and p99.
pub(crate) fn spread(sorted: &[Duration]) -> String {
    format!("{} / {} ms", millis(percentile(sorted, 50)), millis(percentile(sorted, 99)))
}

pub(crate) fn millis(duration: Duration) -> String {
    let digits = if duration < Duration::from_millis(10) { 2 } else { 0 };
    format!("{:.digits$}", duration.as_secs_f64() * 1000.0)
}
