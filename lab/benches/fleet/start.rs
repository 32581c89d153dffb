//! From nothing to all profiles, and what each of them holds in memory.

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::Result;
use credbroker_lab::{
    hub::{EMPTY, Hub, NAMESPACE, PROFILES},
    memory::kib,
    report::{Report, figure, median, percentile, section},
};

use crate::{ledger::millis, news::News, rival::Rival, subject::Subject};

const ROUNDS: usize = 7;
const TIME_LIMIT: f64 = 2.2;
const MEMORY_LIMIT: u64 = 21 * 1024;

pub(crate) async fn measure(report: &mut Report, directory: &Path, hub: &Hub) -> Result<()> {
    fs::create_dir(directory)?;
    section(&format!("Start: until {PROFILES} profiles are known, {ROUNDS} rounds, in turns"));
    let (mut broker_times, mut bare_times, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let directory = directory.join(round.to_string());
        // The order alternates.
        let early = if round % 2 == 0 { None } else { Some(listed(hub)?) };
        let broker = received(&directory, hub).await?;
        let bare = early.map_or_else(|| listed(hub), Ok)?;
        ratios.push(broker.as_secs_f64() / bare.as_secs_f64());
        broker_times.push(broker);
        bare_times.push(bare);
    }
    broker_times.sort_unstable();
    bare_times.sort_unstable();
    let time = |times: &[Duration]| format!("{} ms", millis(percentile(times, 50)));
    figure("credbroker, from its start to the last WatchClusters", &time(&broker_times));
    figure("bare kube reflector, from its start to the list", &time(&bare_times));
    report.ratio("median of the rounds' ratios", median(ratios), TIME_LIMIT);
    memory(report, directory, hub).await
}

/// The time until a broker has sent all profiles.
async fn received(directory: &Path, hub: &Hub) -> Result<Duration> {
    let start = Instant::now();
    let subject = Subject::start(directory, hub, NAMESPACE).await?;
    News::open(&subject).await?;
    Ok(start.elapsed())
}

/// How long until a bare program has all.
fn listed(hub: &Hub) -> Result<Duration> {
    let start = Instant::now();
    Rival::start(hub, NAMESPACE)?.until_ready()?;
    Ok(start.elapsed())
}

/// Beside the same program without profiles.
async fn memory(report: &mut Report, directory: &Path, hub: &Hub) -> Result<()> {
    let empty = Subject::start(&directory.join("empty"), hub, EMPTY).await?;
    empty.until_synced().await?;
    let full = Subject::start(&directory.join("full"), hub, NAMESPACE).await?;
    full.until_synced().await?;
    let (without, with) = (empty.resident()?, full.resident()?);
    News::open(&full).await?;
    let received = full.resident()?;

    let (mut bare_empty, mut bare_full) = (Rival::start(hub, EMPTY)?, Rival::start(hub, NAMESPACE)?);
    bare_empty.until_ready()?;
    bare_full.until_ready()?;
    let bare = bare_full.resident()?.saturating_sub(bare_empty.resident()?);

    section("Memory: VmRSS, beside that of the same program without a profile");
    let each = |bytes: u64| bytes / PROFILES as u64;
    figure("one object as JSON", &kib(hub.object_size() as u64));
    figure("bare kube reflector, per profile", &kib(each(bare)));
    figure("credbroker without profiles", &kib(without));
    let profile = each(with.saturating_sub(without));
    let limit = kib(MEMORY_LIMIT);
    report.limited("credbroker, per profile", &kib(profile), &limit, profile <= MEMORY_LIMIT);
    figure("the same after a WatchClusters sent all", &kib(each(received.saturating_sub(without))));
    Ok(())
}
