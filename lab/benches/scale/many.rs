//! Ten thousand keys and a hundred watches of the fleet: what a hit notices of them, and what an eviction costs.

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use credbroker_lab::{
    hub::{Hub, NAMESPACE, PROFILES},
    report::{Report, figure, median, percentile, section},
};
use credbroker_proto::{
    v1::{self as pb},
    v1alpha1::{self, credential_selector::Selector},
};
use tokio::task::JoinSet;

use crate::{
    keys::{self, KEYS, TOKEN_PLUGIN, fill, request},
    subject::{Rpc, Subject},
};

const FEW: usize = 10;
/// As many as a broker holds by default.
const MANY: usize = 10_000;
const WATCHES: usize = 100;
const ROUNDS: usize = 11;
const ASKS: usize = 4_000;
const P99_LIMIT: f64 = 1.10;
const EVICT_LIMIT: Duration = Duration::from_millis(10);

pub(crate) async fn measure(report: &mut Report, directory: &Path) -> Result<()> {
    fs::create_dir(directory)?;
    let hub = Hub::filled(directory);
    let sections =
        format!("clusterProfiles: {{kubeconfig: {}, namespaces: [{NAMESPACE}]}}\n", hub.kubeconfig.display());
    let start = async |name: &str| {
        let directory = directory.join(name);
        Subject::start(&directory, TOKEN_PLUGIN, &keys::config(&directory, &sections)).await
    };
    let (few, many) = (start("few").await?, start("many").await?);
    fill(&few.rpc, FEW).await?;
    fill(&many.rpc, MANY).await?;
    let _watches = watch_clusters(&many).await?;

    let (mut few_p99, mut many_p99, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let (mut few_times, mut many_times) = (Vec::with_capacity(ASKS), Vec::with_capacity(ASKS));
        for ask in 0..ASKS {
            few_times.push(timed(&few.rpc, ask % FEW).await?);
            many_times.push(timed(&many.rpc, fastrand::usize(0..MANY)).await?);
        }
        few_times.sort_unstable();
        many_times.sort_unstable();
        let (few, many) = (percentile(&few_times, 99), percentile(&many_times, 99));
        ratios.push(many.as_secs_f64() / few.as_secs_f64());
        few_p99.push(few);
        many_p99.push(many);
    }
    section(&format!(
        "GetCredential with {MANY} keys and {WATCHES} WatchClusters: {ROUNDS} rounds of {ASKS}"
    ));
    figure(&format!("p99 with {FEW} keys and no watch"), &micros(&mut few_p99));
    figure(&format!("p99 with {MANY} keys"), &micros(&mut many_p99));
    report.ratio("median of the ratios", median(ratios), P99_LIMIT);

    let start = Instant::now();
    let selector = Some(v1alpha1::CredentialSelector { selector: Some(Selector::All(true)) });
    let evicted = many
        .admin
        .clone()
        .evict_credentials(v1alpha1::EvictCredentialsRequest { selector })
        .await?
        .into_inner();
    let took = start.elapsed();
    ensure!(evicted.evicted as usize == MANY, "{} evicted", evicted.evicted);
    let millis = |time: Duration| format!("{:.1} ms", time.as_secs_f64() * 1000.0);
    report.limited("evict --all, its RPC", &millis(took), &millis(EVICT_LIMIT), took <= EVICT_LIMIT);
    Ok(())
}

async fn timed(rpc: &Rpc, key: usize) -> Result<Duration> {
    let (mut rpc, asked) = (rpc.clone(), request(KEYS, key));
    let start = Instant::now();
    rpc.get_credential(asked).await?;
    Ok(start.elapsed())
}

fn micros(times: &mut [Duration]) -> String {
    times.sort_unstable();
    format!("{} µs", percentile(times, 50).as_micros())
}

/// Watches that are open until this is dropped, and have heard of all profiles.
async fn watch_clusters(subject: &Subject) -> Result<JoinSet<Result<()>>> {
    let (mut watches, (heard, mut news)) = (JoinSet::new(), tokio::sync::mpsc::unbounded_channel());
    for _ in 0..WATCHES {
        let (rpc, heard) = (subject.rpc.clone(), heard.clone());
        watches.spawn(async move {
            let mut rpc = rpc.max_decoding_message_size(8 << 20);
            let mut watch = rpc.watch_clusters(pb::WatchClustersRequest::default()).await?.into_inner();
            let mut known = 0;
            while let Some(message) = watch.message().await? {
                known += message.changed.len();
                if known >= PROFILES {
                    heard.send(()).context("the bench ended")?;
                }
            }
            Ok(())
        });
    }
    for _ in 0..WATCHES {
        tokio::time::timeout(Duration::from_secs(60), news.recv())
            .await
            .context("a watch heard too little")?;
    }
    Ok(watches)
}
