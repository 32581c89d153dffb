//! A caller that has nothing to do with the fleet.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::{Result, anyhow};
use credbroker_client::{Client, CredentialRef, Socket};
use credbroker_lab::broker::PROVIDER;
use tokio::{runtime, time::sleep};

use crate::subject::Subject;

/// Between two asks.
const PAUSE: Duration = Duration::from_millis(5);

/// A caller on a separate thread, so that other work of the bench does not affect its figures.
pub(crate) struct Asking {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<Vec<Duration>>>,
}

impl Asking {
    pub(crate) fn start(subject: &Subject) -> Self {
        let (socket, stop) = (Socket::at(&subject.running.socket), Arc::new(AtomicBool::new(false)));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
                let (client, mut times) = (Client::connect(&socket).await?, Vec::new());
                let reference = CredentialRef::provider(PROVIDER);
                client.credential(&reference).await?;
                while !stopped.load(Ordering::Relaxed) {
                    let start = Instant::now();
                    client.credential(&reference).await?;
                    times.push(start.elapsed());
                    sleep(PAUSE).await;
                }
                times.sort_unstable();
                Ok(times)
            })
        });
        Self { stop, thread }
    }

    /// How long each ask took, sorted.
    pub(crate) fn stop(self) -> Result<Vec<Duration>> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_panic| anyhow!("the caller panicked"))?
    }
}
