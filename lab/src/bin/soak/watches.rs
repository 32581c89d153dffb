//! Watches that come and go.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::{Context as _, Result};
use credbroker_client::{Client, Reason, Socket};
use credbroker_lab::oracle::{KEYS, Oracle};
use futures_util::StreamExt as _;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep, timeout_at},
};
use tokio_util::sync::CancellationToken;

use crate::load::reference;

/// Open watches.
const WATCHES: usize = 1_000;
/// Connections for them.
const CONNECTIONS: usize = 10;
/// A watch stays open for up to this time.
const LONGEST: Duration = Duration::from_secs(120);
/// The pause after a watch that failed.
const PAUSE: Duration = Duration::from_secs(1);

/// Keeps watches open until `stop`, and returns how many were opened.
pub(crate) async fn run(socket: Socket, oracle: Arc<Oracle>, stop: CancellationToken) -> Result<u64> {
    let mut clients = Vec::new();
    for _ in 0..CONNECTIONS {
        clients.push(Client::connect(&socket).await?);
    }
    let opened = Arc::new(AtomicU64::default());
    let mut watches = JoinSet::new();
    for number in 0..WATCHES {
        let client = clients.get(number % CONNECTIONS).context("a client")?.clone();
        let (oracle, opened) = (Arc::clone(&oracle), Arc::clone(&opened));
        watches.spawn(async move {
            loop {
                opened.fetch_add(1, Ordering::Relaxed);
                let end = Instant::now() + LONGEST.mul_f64(fastrand::f64());
                watch(&client, &oracle, fastrand::usize(..KEYS), end).await;
            }
        });
    }
    stop.cancelled().await;
    watches.shutdown().await;
    Ok(opened.load(Ordering::Relaxed))
}

/// Watches `key` until `end`.
async fn watch(client: &Client, oracle: &Oracle, key: usize, end: Instant) {
    let asked = oracle.ask(key);
    let mut messages = match client.watch(&reference(key)).await {
        Ok(messages) => messages,
        Err(error) => {
            oracle.judge_failure(&asked, &error);
            return sleep(PAUSE).await;
        }
    };
    let mut run = 0;
    while let Ok(Some(message)) = timeout_at(end, messages.next()).await {
        match message {
            Ok(credential) => run = oracle.judge_message(key, &credential, run),
            Err(error) if error.reason() == Some(Reason::ProviderChanged) => {
                oracle.judge_withdrawal(&asked);
                return sleep(PAUSE).await;
            }
            Err(error) => {
                // The credential must have expired, so what is known now decides.
                oracle.judge_failure(&oracle.ask(key), &error);
                return sleep(PAUSE).await;
            }
        }
    }
}
