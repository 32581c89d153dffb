//! What callers ask for: the whole list, and credentials by profile.

use std::{
    fs,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use credbroker_client::{CredentialRef, Socket};
use credbroker_proto::v1 as pb;

use crate::{
    broker::{self, PROVIDER},
    channel::channel,
    hub::{NAMESPACE, PROFILES, name},
    ledger::millis,
    load::{Load, in_turns},
    mirror,
    report::{Report, figure, percentile, section},
    subject::{Rpc, Subject},
};

const LISTS: usize = 25;
const LIST_LIMIT: f64 = 2.0;
const ROUNDS: usize = 11;
const CONNECTIONS: usize = 8;
const IN_FLIGHT: usize = 16;
const ROUND: Duration = Duration::from_secs(1);
const RATE_LIMIT: f64 = 0.7;

pub(crate) async fn measure(report: &mut Report, directory: &Path, subject: &Subject) -> Result<()> {
    lists(report, directory, subject).await?;
    credentials(report, subject).await
}

async fn lists(report: &mut Report, directory: &Path, subject: &Subject) -> Result<()> {
    let pages = all(&subject.rpc).await?;
    let clusters: usize = pages.iter().map(|page| page.clusters.len()).sum();
    ensure!(clusters == PROFILES, "{clusters} clusters in all pages");
    broker::private(directory)?;
    let (file, socket) = (directory.join("pages"), directory.join("mirror.sock"));
    let encoded = mirror::encoded(&pages);
    fs::write(&file, &encoded)?;
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(mirror::COMMAND).arg(&socket).arg(&file);
    let mirror = broker::ready(command, directory, socket)?;
    let bare = Rpc::new(channel(&mirror.socket).await?);

    let (mut times, mut bare_times) = (Vec::new(), Vec::new());
    for _ in 0..LISTS {
        for (rpc, times) in [(&subject.rpc, &mut times), (&bare, &mut bare_times)] {
            let start = Instant::now();
            all(rpc).await?;
            times.push(start.elapsed());
        }
    }
    times.sort_unstable();
    bare_times.sort_unstable();
    let (time, bare_time) = (percentile(&times, 50), percentile(&bare_times, 50));
    let size = format!("{} pages, {} KiB", pages.len(), encoded.len() / 1024);
    section(&format!("ListClusters: all of {PROFILES}, {size}, {LISTS} times, in turns"));
    figure("bare tonic service with the same pages, p50", &format!("{} ms", millis(bare_time)));
    figure("credbroker, p50", &format!("{} ms", millis(time)));
    let ratio = time.as_secs_f64() / bare_time.as_secs_f64();
    let limit = format!("{LIST_LIMIT:.1}");
    report.limited("ratio of the p50", &format!("{ratio:.2}"), &limit, ratio <= LIST_LIMIT);
    Ok(())
}

async fn all(rpc: &Rpc) -> Result<Vec<pb::ListClustersResponse>> {
    let (mut rpc, mut pages, mut page_token) = (rpc.clone(), Vec::new(), String::new());
    loop {
        let request = pb::ListClustersRequest { page_token: page_token.clone(), ..Default::default() };
        let page = rpc.list_clusters(request).await?.into_inner();
        page_token.clone_from(&page.next_page_token);
        pages.push(page);
        if page_token.is_empty() {
            return Ok(pages);
        }
    }
}

async fn credentials(report: &mut Report, subject: &Subject) -> Result<()> {
    section(&format!(
        "GetCredential on a warm key: {CONNECTIONS} connections, {IN_FLIGHT} requests in flight on each, {ROUNDS} rounds of {} s in turns",
        ROUND.as_secs()
    ));
    let socket = Socket::at(&subject.running.socket);
    let by_profile = CredentialRef::cluster_profile(NAMESPACE, name(0));
    let by_provider = CredentialRef::provider(PROVIDER);
    let runs = subject.running.runs();
    let load = |request| Load { socket: &socket, request, connections: CONNECTIONS, in_flight: IN_FLIGHT };
    let rates = in_turns(load(&by_profile), load(&by_provider), ROUNDS, ROUND).await?;
    figure("by provider, requests per second", &format!("{:.0}", rates.rival));
    figure("by cluster profile, requests per second", &format!("{:.0}", rates.subject));
    let ratio = rates.ratio;
    report.limited(
        "median of the rounds' ratios",
        &format!("{ratio:.2}"),
        &format!("{RATE_LIMIT:.2}"),
        ratio >= RATE_LIMIT,
    );
    let runs = subject.running.runs() - runs;
    report.limited("plugin runs", &runs.to_string(), "none", runs == 0);
    Ok(())
}
