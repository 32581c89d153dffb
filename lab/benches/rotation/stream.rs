//! Many references on one stream: what they cost, and how soon a rotation reaches them.

use std::{path::Path, time::Duration};

use anyhow::Result;
use credbroker_lab::{
    memory::kib,
    report::{Report, figure, percentile, section},
};

use crate::{fan_out::millis, subject::Subject, watchers::Watchers};

const REFERENCES: usize = 10_000;
const CONNECTIONS: usize = 100;
const ROTATIONS: usize = 20;
/// The allocator has settled when it takes less than `STEADY` more in three rotations.
const STEADY: u64 = 1 << 20;
const SETTLING: usize = 12;
const LIMIT: Duration = Duration::from_millis(50);
const MEMORY: u64 = 12 << 20;

/// All references are to one credential.
pub(crate) async fn one(report: &mut Report, directory: &Path) -> Result<()> {
    let mut subject = Subject::start(directory).await?;
    subject.rotate().await?;
    let before = subject.resident()?;
    let mut stream = Watchers::connect(subject.socket(), 1).await?;
    stream.follow(REFERENCES, false).await?;
    let mut took = Vec::with_capacity(ROTATIONS * REFERENCES);
    for _ in 0..ROTATIONS {
        subject.rotate().await?;
        took.extend(stream.all().await?);
    }
    took.sort_unstable();
    section(&format!("One stream: {REFERENCES} references to one credential, {ROTATIONS} rotations"));
    let p99 = percentile(&took, 99);
    figure("from the plugin's output to receipt, p50", &millis(percentile(&took, 50)));
    report.limited("the same, p99", &millis(p99), &millis(LIMIT), p99 <= LIMIT);
    memory(report, "memory", subject.resident()?.saturating_sub(before));
    stream.pause();
    let mut most = 0;
    for _ in 0..ROTATIONS {
        subject.rotate().await?;
        most = most.max(subject.resident()?);
    }
    memory(report, "memory while the peer reads nothing", most.saturating_sub(before));
    Ok(())
}

/// Each reference is to another credential, which a separate watch follows too.
pub(crate) async fn many(report: &mut Report, directory: &Path) -> Result<()> {
    let subject = Subject::start(directory).await?;
    let mut watchers = Watchers::connect(subject.socket(), CONNECTIONS).await?;
    watchers.watch(u32::try_from(REFERENCES / CONNECTIONS)?, true).await?;
    let before = settled(&subject, &mut watchers).await?;
    let mut stream = Watchers::connect(subject.socket(), 1).await?;
    stream.follow(REFERENCES, true).await?;
    let took = rotated(&subject, &mut [&mut watchers, &mut stream]).await?;
    let [separate, streamed] =
        [0, 1].map(|of| took.get(of).map_or(Duration::ZERO, |took| percentile(took, 99)));
    section(&format!(
        "One stream: {REFERENCES} credentials of 2 KiB, and {CONNECTIONS} connections with 100 watches"
    ));
    figure("from the plugin's output to receipt by a watch, p99", &millis(separate));
    let name = "the same by the stream, p99";
    report.limited(name, &millis(streamed), &millis(separate), streamed <= separate);
    memory(report, "memory", subject.resident()?.saturating_sub(before));
    stream.pause();
    rotated(&subject, &mut [&mut watchers]).await?;
    memory(report, "memory while the peer reads nothing", subject.resident()?.saturating_sub(before));
    Ok(())
}

/// Rotates all keys until the allocator has settled, and returns the resident memory.
async fn settled(subject: &Subject, watchers: &mut Watchers) -> Result<u64> {
    let mut resident = Vec::new();
    for _ in 0..SETTLING {
        rotated(subject, &mut [watchers]).await?;
        resident.push(subject.resident()?);
        if let [.., earlier, _, _, now] = *resident
            && now < earlier + STEADY
        {
            break;
        }
    }
    subject.resident()
}

/// Rotates all keys, and returns how long each took to reach all of `watchers`.
async fn rotated(subject: &Subject, watchers: &mut [&mut Watchers]) -> Result<Vec<Vec<Duration>>> {
    subject.rotate_keys().await?;
    let mut took = Vec::new();
    for watchers in watchers {
        let mut times = watchers.all().await?;
        times.sort_unstable();
        took.push(times);
    }
    Ok(took)
}

fn memory(report: &mut Report, name: &str, more: u64) {
    report.limited(
        &format!("{name}, more than without the stream"),
        &kib(more),
        &kib(MEMORY),
        more <= MEMORY,
    );
}
