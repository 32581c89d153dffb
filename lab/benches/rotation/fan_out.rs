//! The time from the plugin's new credential to all watches.

use std::{path::Path, time::Duration};

use anyhow::Result;
use credbroker_lab::report::{Report, figure, percentile, section};

use crate::{subject::Subject, watchers::Watchers};

const WATCHES_EACH: u32 = 100;
const ROTATIONS: usize = 20;
const LIMIT: Duration = Duration::from_millis(50);

pub(crate) async fn measure(report: &mut Report, directory: &Path, connections: usize) -> Result<()> {
    let mut subject = Subject::start(directory).await?;
    let mut watchers = Watchers::connect(subject.socket(), connections).await?;
    watchers.watch(WATCHES_EACH, false).await?;

    let mut took = Vec::with_capacity(ROTATIONS * watchers.count());
    for _ in 0..ROTATIONS {
        subject.rotate().await?;
        took.extend(watchers.all().await?);
    }
    took.sort_unstable();

    let count = watchers.count();
    section(&format!("Fan-out: {count} watches on {connections} connections, {ROTATIONS} rotations"));
    let p99 = percentile(&took, 99);
    figure("from the plugin's output to receipt, p50", &millis(percentile(&took, 50)));
    report.limited("the same, p99", &millis(p99), &millis(LIMIT), p99 <= LIMIT);
    figure("the same, max", &millis(percentile(&took, 100)));
    Ok(())
}

pub(crate) fn millis(duration: Duration) -> String {
    format!("{:.1} ms", duration.as_secs_f64() * 1000.0)
}
