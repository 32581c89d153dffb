//! Requests, reports of rejections, abandoned calls, and evictions.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::{Context as _, Result};
use credbroker_client::{Client, CredentialRef, Socket, admin::Selector};
use credbroker_lab::{
    oracle::{KEYS, Oracle},
    token::{PROVIDERS, profile, provider},
};
use tokio::{
    task::JoinSet,
    time::{MissedTickBehavior, interval, timeout},
};
use tokio_util::sync::CancellationToken;

/// Requests in a second.
const RATE: u64 = 500;
/// Connections that stay open.
const CONNECTIONS: usize = 16;
/// Time between two evictions.
const EVICTION: Duration = Duration::from_secs(15);

/// What was sent.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sent {
    pub(crate) requests: u64,
    pub(crate) reports: u64,
    pub(crate) abandoned: u64,
    pub(crate) evictions: u64,
}

#[derive(Debug, Default)]
struct Counters {
    requests: AtomicU64,
    reports: AtomicU64,
    abandoned: AtomicU64,
}

/// The credential of the key with this number.
pub(crate) fn reference(key: usize) -> CredentialRef {
    CredentialRef::provider(provider(key)).env("AWS_PROFILE", profile(key))
}

/// Sends requests until `stop`, and waits for their answers.
pub(crate) async fn run(socket: Socket, oracle: Arc<Oracle>, stop: CancellationToken) -> Result<Sent> {
    let mut clients = Vec::new();
    for _ in 0..CONNECTIONS {
        clients.push(Client::connect(&socket).await?);
    }
    let counters = Arc::new(Counters::default());
    let evictions = tokio::spawn(evict(socket.clone(), Arc::clone(&oracle), stop.clone()));
    let mut calls = JoinSet::new();
    let mut ticks = interval(Duration::from_secs(1) / u32::try_from(RATE)?);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = stop.cancelled() => break,
        }
        let client = clients.get(fastrand::usize(..CONNECTIONS)).context("a client")?.clone();
        let call = Call { client, socket: socket.clone(), oracle: Arc::clone(&oracle) };
        calls.spawn(call.make(Arc::clone(&counters)));
        while let Some(ended) = calls.try_join_next() {
            ended?;
        }
    }
    while let Some(ended) = calls.join_next().await {
        ended?;
    }
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    Ok(Sent {
        requests: count(&counters.requests),
        reports: count(&counters.reports),
        abandoned: count(&counters.abandoned),
        evictions: evictions.await??,
    })
}

/// One call.
struct Call {
    client: Client,
    socket: Socket,
    oracle: Arc<Oracle>,
}

impl Call {
    /// In one of a hundred calls, the caller goes away early or reports that the credential was rejected. In five, the
    /// caller makes a separate connection.
    async fn make(self, counters: Arc<Counters>) {
        let key = fastrand::usize(..KEYS);
        let reference = reference(key);
        counters.requests.fetch_add(1, Ordering::Relaxed);
        match fastrand::u8(..200) {
            0 => {
                counters.abandoned.fetch_add(1, Ordering::Relaxed);
                let early = Duration::from_micros(fastrand::u64(..2_000));
                drop(timeout(early, self.client.credential(&reference)).await);
            }
            1 => {
                counters.reports.fetch_add(1, Ordering::Relaxed);
                let asked = self.oracle.ask(key);
                let answer = self.client.credential(&reference).await;
                self.oracle.judge(&asked, &answer);
                let Ok(credential) = answer else { return };
                let asked = self.oracle.ask(key);
                let report = self.client.report_rejected(&reference, credential.generation()).await;
                self.oracle.judge_report(&asked, &report.map(|report| report.credential));
            }
            2..12 => {
                let asked = self.oracle.ask(key);
                let answer = match Client::connect(&self.socket).await {
                    Ok(client) => client.credential(&reference).await,
                    Err(error) => Err(error),
                };
                self.oracle.judge(&asked, &answer);
            }
            _ => {
                let asked = self.oracle.ask(key);
                self.oracle.judge(&asked, &self.client.credential(&reference).await);
            }
        }
    }
}

/// Evicts the credentials of one provider after another until `stop`, and returns how often.
async fn evict(socket: Socket, oracle: Arc<Oracle>, stop: CancellationToken) -> Result<u64> {
    let mut ticks = interval(EVICTION);
    ticks.tick().await;
    let mut count = 0;
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = stop.cancelled() => return Ok(count),
        }
        let number = fastrand::usize(..PROVIDERS);
        let keys = || (0..KEYS).filter(|key| key % PROVIDERS == number);
        let began = oracle.begin_eviction(keys());
        // The broker closes a connection on which no call is made.
        let admin = Client::connect(&socket).await?.admin();
        admin.evict(&Selector::Provider(provider(number))).await?;
        oracle.end_eviction(keys(), began);
        count += 1;
    }
}
