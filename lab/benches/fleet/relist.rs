//! A watch that is too old: everything is read once more, and nothing has changed.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use credbroker_lab::{
    hub::{Hub, NAMESPACE, PROFILES},
    report::{Report, figure, percentile, section},
};
use credbroker_test_support::Collection;
use tokio::time::{sleep, timeout};

use crate::{ledger::millis, news::News, rival::Rival, subject::Subject};

const ROUNDS: u32 = 4;
const CPU_LIMIT: f64 = 1.8;
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) async fn measure(report: &mut Report, hub: &Hub, subject: &Subject) -> Result<()> {
    section(&format!("Relist: 410 with {PROFILES} profiles known, nothing changed, {ROUNDS} times"));
    let mut rival = Rival::start(hub, NAMESPACE)?;
    rival.until_ready()?;
    let news = News::open(subject).await?;
    hub.server.until_watched(Collection::ClusterProfiles, 2).await;
    let runs = subject.running.runs();
    let (used, bare_used) = (subject.processor_time()?, rival.processor_time()?);
    let (mut times, mut bare_times) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let (start, watches) = (Instant::now(), hub.server.watches(Collection::ClusterProfiles));
        hub.server.compact();
        hub.server.expire_watches();
        tokio::task::block_in_place(|| rival.until_ready())?;
        bare_times.push(start.elapsed());
        // A new watch request follows the list.
        let both_watch = async {
            while hub.server.watches(Collection::ClusterProfiles) < watches + 2 {
                sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(PATIENCE, both_watch).await.context("the broker never watched again")?;
        times.push(start.elapsed());
        hub.server.until_watched(Collection::ClusterProfiles, 2).await;
    }
    let cpu = subject.processor_time()?.saturating_sub(used);
    let bare_cpu = rival.processor_time()?.saturating_sub(bare_used);
    for times in [&mut times, &mut bare_times] {
        times.sort_unstable();
    }
    let median = |times: &[Duration]| format!("{} ms", millis(percentile(times, 50)));
    figure("bare kube reflector, without a pause, median", &median(&bare_times));
    // Each failure in a row has it wait for longer, at random.
    let shortest = format!("{} ms", millis(percentile(&times, 0)));
    figure("credbroker, with its pause, the shortest", &shortest);
    figure("bare kube reflector, processor time for one", &format!("{} ms", millis(bare_cpu / ROUNDS)));
    figure("credbroker, processor time for one", &format!("{} ms", millis(cpu / ROUNDS)));
    let ratio = cpu.as_secs_f64() / bare_cpu.as_secs_f64();
    report.ratio("ratio of the two", ratio, CPU_LIMIT);
    let (runs, received) = (subject.running.runs() - runs, news.take().len());
    let nothing = runs == 0 && received == 0;
    report.limited("plugin runs, clusters sent", &format!("{runs} / {received}"), "none", nothing);
    Ok(())
}
