//! From the plugin's new credential to everybody who watches.

use std::{path::Path, time::Duration};

use anyhow::Result;

use crate::{
    report::{figure, percentile, section},
    subject::Subject,
    watchers::Watchers,
};

const WATCHES_EACH: usize = 100;
const ROTATIONS: usize = 20;

pub(crate) async fn measure(directory: &Path, connections: usize) -> Result<()> {
    let mut subject = Subject::start(directory).await?;
    let mut watchers = Watchers::connect(subject.socket(), connections).await?;
    watchers.watch(WATCHES_EACH).await?;

    let mut took = Vec::with_capacity(ROTATIONS * watchers.count());
    for _ in 0..ROTATIONS {
        let printed = subject.rotate().await?;
        let received = watchers.all().await?;
        took.extend(received.iter().map(|at| at.duration_since(printed).unwrap_or_default()));
    }
    took.sort_unstable();

    let count = watchers.count();
    section(&format!("Fan-out: {count} watches on {connections} connections, {ROTATIONS} rotations"));
    for (name, percent) in [("p50", 50), ("p99", 99), ("max", 100)] {
        figure(&format!("from the plugin's output to receipt, {name}"), &millis(percentile(&took, percent)));
    }
    Ok(())
}

fn millis(duration: Duration) -> String {
    format!("{:.1} ms", duration.as_secs_f64() * 1000.0)
}
