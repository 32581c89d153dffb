//! `GetCredential` as often as it goes.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::Result;
use credbroker_client::{Client, CredentialRef, Socket};
use tokio::{task::JoinSet, time::sleep};

use crate::report::median;

const WARM_UP: Duration = Duration::from_millis(500);

/// What is asked, and where.
#[derive(Clone, Copy, Debug)]
pub struct Load<'a> {
    /// Of the server.
    pub socket: &'a Socket,
    /// Names the credential.
    pub request: &'a CredentialRef,
    /// Number of connections.
    pub connections: usize,
    /// On each connection.
    pub in_flight: usize,
}

/// Medians over all rounds.
#[derive(Clone, Copy, Debug)]
pub struct Rates {
    /// Requests per second.
    pub subject: f64,
    /// Requests per second.
    pub rival: f64,
    /// The first beside the second.
    pub ratio: f64,
}

/// Both in turns, for `round` each.
pub async fn in_turns(subject: Load<'_>, rival: Load<'_>, rounds: usize, round: Duration) -> Result<Rates> {
    subject.rate(WARM_UP).await?;
    rival.rate(WARM_UP).await?;
    let (mut subject_rates, mut rival_rates, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for number in 0..rounds {
        // The order alternates, so that a drift of the machine affects both alike.
        let subject_first = number % 2 == 0;
        let early = if subject_first { subject } else { rival }.rate(round).await?;
        let late = if subject_first { rival } else { subject }.rate(round).await?;
        let (subject_rate, rival_rate) = if subject_first { (early, late) } else { (late, early) };
        subject_rates.push(subject_rate);
        rival_rates.push(rival_rate);
        ratios.push(subject_rate / rival_rate);
    }
    Ok(Rates { subject: median(subject_rates), rival: median(rival_rates), ratio: median(ratios) })
}

impl Load<'_> {
    /// Requests per second over `duration`.
    async fn rate(self, duration: Duration) -> Result<f64> {
        let (stop, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let mut tasks = JoinSet::new();
        for _ in 0..self.connections {
            let client = Client::connect(self.socket).await?;
            for _ in 0..self.in_flight {
                let (client, request) = (client.clone(), self.request.clone());
                let (stop, count) = (Arc::clone(&stop), Arc::clone(&count));
                tasks.spawn(async move {
                    while !stop.load(Ordering::Relaxed) {
                        client.credential(&request).await?;
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
}
