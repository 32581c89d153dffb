//! What a connection that watches holds in the broker, and each further watch on it.

use std::path::Path;

use anyhow::Result;
use credbroker_lab::{
    memory::kib,
    report::{Report, section},
};

use crate::{subject::Subject, watchers::Watchers};

const CONNECTIONS: usize = 200;
const FURTHER: u32 = 49;
const CONNECTION_LIMIT: u64 = 32 * 1024;
const WATCH_LIMIT: u64 = 8 * 1024;

/// Each time after a rotation: buffers have the size that they need, and not only that of a first message.
pub(crate) async fn measure(report: &mut Report, directory: &Path) -> Result<()> {
    let mut subject = Subject::start(directory).await?;
    // The memory that does not depend on the watches is not measured.
    let mut first = Watchers::connect(subject.socket(), 1).await?;
    first.watch(1, false).await?;
    let before = after_a_rotation(&mut subject, &mut first).await?;

    let mut watchers = Watchers::connect(subject.socket(), CONNECTIONS).await?;
    watchers.watch(1, false).await?;
    let one_each = after_a_rotation(&mut subject, &mut watchers).await?;
    watchers.watch(FURTHER, false).await?;
    let many_each = after_a_rotation(&mut subject, &mut watchers).await?;

    section(&format!("Memory: {CONNECTIONS} connections, 1 watch and then {} on each", FURTHER + 1));
    let connection = one_each.saturating_sub(before) / CONNECTIONS as u64;
    let watch = many_each.saturating_sub(one_each) / (CONNECTIONS as u64 * u64::from(FURTHER));
    for (name, bytes, limit) in [
        ("a connection with one watch", connection, CONNECTION_LIMIT),
        ("a further watch on it", watch, WATCH_LIMIT),
    ] {
        report.limited(name, &kib(bytes), &kib(limit), bytes <= limit);
    }
    Ok(())
}

async fn after_a_rotation(subject: &mut Subject, watchers: &mut Watchers) -> Result<u64> {
    subject.rotate().await?;
    watchers.all().await?;
    subject.resident()
}
