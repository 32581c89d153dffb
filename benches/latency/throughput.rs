//! `GetCredential` on a warm key, beside a service that does nothing.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use credbroker_client::{Client, Socket};
use tokio::{runtime, task::JoinSet, time::sleep};

use crate::{
    broker::request,
    daemon::{self, Subject},
    report::{Report, figure, section},
};

const CONNECTIONS: usize = 8;
const IN_FLIGHT: usize = 16;
const ROUNDS: usize = 15;
const ROUND: Duration = Duration::from_secs(1);
const WARM_UP: Duration = Duration::from_millis(500);
const LIMIT: f64 = 0.85;

pub(crate) fn measure(report: &mut Report, directory: &Path, subject: Subject) -> Result<()> {
    let runtime = runtime::Builder::new_multi_thread().enable_all().build()?;
    let broker = daemon::start(directory, subject)?;
    let broker_socket = Socket::at(&broker.socket);
    let credential = runtime.block_on(async {
        let answer = Client::connect(&broker_socket).await?.credential(request()).await?;
        answer.credential.context("the broker's answer holds no credential")
    })?;
    let bare_directory = directory.join("bare");
    std::fs::create_dir(&bare_directory)?;
    let bare = daemon::start_echo(&bare_directory, &credential)?;
    let bare_socket = Socket::at(&bare.socket);

    let title = format!(
        "GetCredential on a warm key: {CONNECTIONS} connections, {IN_FLIGHT} requests in flight on each, {ROUNDS} rounds of {} s in turns",
        ROUND.as_secs()
    );
    section(&title);
    runtime.block_on(load(&broker_socket, WARM_UP))?;
    runtime.block_on(load(&bare_socket, WARM_UP))?;
    let (mut broker_rates, mut bare_rates, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        // Whoever goes first in one round goes second in the next: a machine that drifts favours neither.
        let broker_first = round % 2 == 0;
        let early =
            runtime.block_on(load(if broker_first { &broker_socket } else { &bare_socket }, ROUND))?;
        let late = runtime.block_on(load(if broker_first { &bare_socket } else { &broker_socket }, ROUND))?;
        let (broker_rate, bare_rate) = if broker_first { (early, late) } else { (late, early) };
        broker_rates.push(broker_rate);
        bare_rates.push(bare_rate);
        ratios.push(broker_rate / bare_rate);
    }
    figure("credbroker, requests per second", &format!("{:.0}", median(broker_rates)));
    figure("bare tonic service, requests per second", &format!("{:.0}", median(bare_rates)));
    let ratio = median(ratios);
    report.limited("median of the rounds' ratios", &format!("{ratio:.3}"), "0.850", ratio >= LIMIT);
    Ok(())
}

/// Requests per second over `duration`.
async fn load(socket: &Socket, duration: Duration) -> Result<f64> {
    let (stop, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let mut tasks = JoinSet::new();
    for _ in 0..CONNECTIONS {
        let client = Client::connect(socket).await?;
        for _ in 0..IN_FLIGHT {
            let (mut client, stop, count) = (client.clone(), Arc::clone(&stop), Arc::clone(&count));
            tasks.spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    client.credential(request()).await?;
                    count.fetch_add(1, Ordering::Relaxed);
                }
                Ok::<_, credbroker_client::Error>(())
            });
        }
    }
    let (start, before) = (Instant::now(), count.load(Ordering::Relaxed));
    sleep(duration).await;
    let (done, took) = (count.load(Ordering::Relaxed) - before, start.elapsed());
    stop.store(true, Ordering::Relaxed);
    while let Some(outcome) = tasks.join_next().await {
        outcome??;
    }
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52 requests")]
    Ok(done as f64 / took.as_secs_f64())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}
