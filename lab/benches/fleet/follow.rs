//! 200 changes of the hub in a second: how soon they are sent, what they cost, and how they affect other requests.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant, SystemTime},
};

use anyhow::{Context, Result, ensure};
use credbroker_lab::{
    hub::{Change, Hub, NAMESPACE, PROFILES, name, number_of},
    report::{Report, figure, percentile, section},
};
use credbroker_proto::v1::WatchCredentialRequest;
use tokio::{
    task::AbortHandle,
    time::{interval, sleep},
};

use crate::{
    asking::Asking,
    ledger::{Note, latencies, spread},
    news::News,
    processor::percent,
    rival::Rival,
    subject::{Subject, reference},
};

const PER_SECOND: u32 = 200;
const CHANGES: u32 = PER_SECOND * 15;
/// The profile whose credential is watched, and how many changes there are for one of it.
const WATCHED: usize = 0;
const WATCHED_EACH: u32 = 100;
const IDLE: Duration = Duration::from_secs(5);
const CPU_LIMIT: f64 = 3.0;
const HIT_LIMIT: f64 = 2.5;

pub(crate) async fn measure(
    report: &mut Report,
    hub: &mut Hub,
    subject: &Subject,
    change: Change,
) -> Result<()> {
    let title = match change {
        Change::Endpoint => "endpoints",
        Change::Shown => "properties and labels, in turns",
    };
    section(&format!("Following {PER_SECOND} changes/s for {} s: {title}", CHANGES / PER_SECOND));
    let mut rival = Rival::start(hub, NAMESPACE)?;
    rival.until_ready()?;
    let news = News::open(subject).await?;
    let (credentials, _watch) = watch_credential(subject).await?;
    sleep(Duration::from_secs(1)).await;

    let asking = Asking::start(subject);
    let (start, used) = (Instant::now(), subject.processor_time()?);
    sleep(IDLE).await;
    let idle = percent(subject.processor_time()?.saturating_sub(used), start.elapsed());
    let quiet = asking.stop()?;

    let (runs, sent) = (subject.running.runs(), lock(&credentials).len());
    let asking = Asking::start(subject);
    let (start, used, bare_used) = (Instant::now(), subject.processor_time()?, rival.processor_time()?);
    let written = write(hub, change).await;
    let took = start.elapsed();
    ensure!(took < Duration::from_secs(20), "the hub could not change so fast: {took:?}");
    let last = all_sent(hub, &news).await;
    let cpu = percent(subject.processor_time()?.saturating_sub(used), start.elapsed());
    let bare_cpu = percent(rival.processor_time()?.saturating_sub(bare_used), start.elapsed());
    let busy = asking.stop()?;
    last?;

    let received = latencies(&written, &news.take())?;
    let bare = latencies(&written, &rival.end()?)?;
    figure("bare kube reflector, from write to event, p50 / p99", &spread(&bare));
    figure("credbroker, from write to WatchClusters, p50 / p99", &spread(&received));
    let (runs, sent) = (subject.running.runs() - runs, lock(&credentials).len() - sent);
    if change == Change::Endpoint {
        let moves: Vec<_> = written.iter().filter(|note| note.profile == name(WATCHED)).collect();
        sleep(Duration::from_millis(500)).await; // the last run
        let followed = latencies(moves.iter().copied(), &lock(&credentials))?;
        figure("from write to WatchCredential, p50 / p99", &spread(&followed));
        figure("moves of the watched profile, messages, runs", &format!("{} / {sent} / {runs}", moves.len()));
        report.limited("plugin runs", &runs.to_string(), "one for a move", runs <= moves.len());
    } else {
        let nothing = runs == 0 && sent == 0;
        report.limited("plugin runs, WatchCredential messages", &format!("{runs} / {sent}"), "none", nothing);
    }
    figure("bare kube reflector, of one core", &format!("{bare_cpu:.1} %"));
    figure("credbroker, of one core", &format!("{cpu:.1} % (idle {idle:.1} %)"));
    report.ratio("ratio of the two, less idle", (cpu - idle) / bare_cpu, CPU_LIMIT);
    let p50 = |times: &[Duration]| percentile(times, 50).as_secs_f64();
    figure("GetCredential of another provider, idle, p50 / p99", &spread(&quiet));
    figure("the same while following, p50 / p99", &spread(&busy));
    report.ratio("ratio of the p50", p50(&busy) / p50(&quiet), HIT_LIMIT);
    Ok(())
}

/// Returns the changes that can be seen through a broker.
async fn write(hub: &mut Hub, change: Change) -> Vec<Note> {
    let (mut pace, mut written) = (interval(Duration::from_secs(1) / PER_SECOND), Vec::new());
    let mut random = fastrand::Rng::with_seed(4);
    for count in 0..CHANGES {
        pace.tick().await;
        let index = if count % WATCHED_EACH == 0 { WATCHED } else { random.usize(1..PROFILES) };
        let (number, at) = (hub.change(index, change), SystemTime::now());
        hub.write(index);
        written.extend(number.map(|number| Note { profile: name(index), number, at }));
    }
    written
}

/// Waits until the broker has sent the hub's state of every profile.
async fn all_sent(hub: &Hub, news: &News) -> Result<()> {
    let stored: Vec<_> = (0..PROFILES)
        .map(|index| hub.stored(index).context("an object that is gone"))
        .collect::<Result<_>>()?;
    let same = |(index, stored): (usize, &(String, String)), received: &crate::news::Received| {
        received.clusters.get(&name(index)) == Some(stored)
    };
    news.until(|received| stored.iter().enumerate().all(|one| same(one, received))).await
}

type Notes = Arc<Mutex<Vec<Note>>>;

/// Follows the credential of the watched profile, whose first message is there.
async fn watch_credential(subject: &Subject) -> Result<(Notes, AbortOnDrop)> {
    let request = WatchCredentialRequest { r#ref: Some(reference(WATCHED)) };
    let mut watch = subject.rpc.clone().watch_credential(request).await?.into_inner();
    watch.message().await?.context("a first message")?;
    let notes = Notes::default();
    let noting = Arc::clone(&notes);
    let task = tokio::spawn(async move {
        while let Ok(Some(message)) = watch.message().await {
            let number = number_of(&message.cluster.unwrap_or_default().server);
            lock(&noting).push(Note { profile: name(WATCHED), number, at: SystemTime::now() });
        }
    });
    Ok((notes, AbortOnDrop(task.abort_handle())))
}

struct AbortOnDrop(AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn lock(notes: &Notes) -> std::sync::MutexGuard<'_, Vec<Note>> {
    notes.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
