//! The whole list, which callers ask for page by page.

use std::{fs, path::Path, process::Command, time::Instant};

use anyhow::{Result, ensure};
use credbroker_lab::{
    broker,
    channel::channel,
    hub::PROFILES,
    report::{Report, figure, percentile, section},
};
use credbroker_proto::v1 as pb;

use crate::{
    ledger::millis,
    mirror,
    subject::{Rpc, Subject},
};

const LISTS: usize = 25;
const LIMIT: f64 = 2.0;

pub(crate) async fn measure(report: &mut Report, directory: &Path, subject: &Subject) -> Result<()> {
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
    report.ratio("ratio of the p50", time.as_secs_f64() / bare_time.as_secs_f64(), LIMIT);
    Ok(())
}

async fn all(rpc: &Rpc) -> Result<Vec<pb::ListClustersResponse>> {
    let (mut rpc, mut pages, mut page_token) = (rpc.clone(), Vec::new(), None);
    loop {
        let request = pb::ListClustersRequest { page_token: page_token.clone(), ..Default::default() };
        let page = rpc.list_clusters(request).await?.into_inner();
        page_token.clone_from(&page.next_page_token);
        pages.push(page);
        if page_token.is_none() {
            return Ok(pages);
        }
    }
}
