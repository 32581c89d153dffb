//! Decides when plugins run: one queue for all of them.
//!
//! The decisions are pure: `queue` picks the next run, `pace` limits the runs of an issuer, and `words` finds out whether
//! a failed plugin was throttled, in what is not `foreign`. `shared` adds the lock, the clock and the timer.

mod blame;
mod foreign;
mod gate;
mod lane;
mod line;
mod pace;
mod permit;
mod queue;
mod ring;
mod share;
mod shared;
mod slots;
#[cfg(test)]
mod tests;
mod ticket;
mod turns;
mod urgency;
mod words;

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::{
    sync::{Notify, oneshot},
    time::sleep,
};

use self::shared::{SchedulerState, SharedScheduler};
use credbroker_observe::clock::Clock;
use credbroker_plugin::{Issuer, Provider};

pub use foreign::ForeignTexts;
pub use gate::Cause;
pub use pace::PROBE_EVERY;
pub use permit::RunPermit;
pub use share::RunShares;
pub use ticket::{Throttled, Ticket, TicketHandle, WaitsFor};
pub use urgency::{RunSource, Urgency};

/// The longest sleep of the timer. It bounds how late the end of a suspend is noticed, during which tokio's clock stops.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// Decides which plugin runs next. Clones share one queue.
///
/// Runs that a caller waits for and urgent runs go first. Among those of one issuer uids take turns, within a uid its
/// providers, and within a provider its processes; the broker takes turns like a uid. While a caller of another uid waits, a
/// uid has at most three quarters of the slots. Background runs get the remaining slots, but not the last one if there are two or more. All runs of one
/// [`Issuer`] share its rate and its concurrency. An issuer that asks for fewer runs is paused; one run in
/// [`PROBE_EVERY`] tries it again, and more follow step by step. A busy or paused provider or issuer does not delay any
/// other.
///
/// [`Issuer`]: credbroker_plugin::Issuer
#[derive(Clone, Debug)]
pub struct Scheduler {
    shared: Arc<SharedScheduler>,
}

impl Scheduler {
    /// A scheduler of `runs` runs at a time, at least one. `jitter` is uniform in [0, 1).
    ///
    /// A run that must wait for a time starts only while [`keep_time`](Self::keep_time) runs.
    pub fn new(runs: usize, clock: Arc<dyn Clock>, jitter: fn() -> f64) -> Self {
        let (state, rearmed) = (Mutex::new(SchedulerState::new(runs)), Notify::new());
        Self { shared: Arc::new(SharedScheduler { state, clock, jitter, rearmed }) }
    }

    /// Sets shares: how many of the runs that started the callers of one process or uid may wait for. Without them, they
    /// may wait for all.
    pub fn set_shares(&self, shares: RunShares) {
        self.shared.with(|state, now| state.queue.set_shares(shares, now));
    }

    /// Sets how many runs may wait for a person at a time. Without it, none may.
    pub fn set_interactive(&self, runs: usize) {
        self.shared.with(|state, _| state.queue.set_interactive(runs));
    }

    /// Starts the runs whose time has come. Never returns.
    pub async fn keep_time(&self) {
        loop {
            match self.shared.dispatch_due() {
                Some(left) => tokio::select! {
                    () = sleep(left.min(LONGEST_SLEEP)) => {}
                    () = self.shared.rearmed.notified() => {}
                },
                None => self.shared.rearmed.notified().await,
            }
        }
    }

    /// Sets the limits of a newer configuration. Runs that have started go on, and pauses last.
    pub fn set_limits(&self, runs: usize, issuers: impl IntoIterator<Item = Arc<Issuer>>) {
        self.shared.with(|state, now| state.queue.set_limits(runs, issuers, now));
    }

    /// Queues a run of `provider`, which `source` defines. Dropping the ticket removes it from the queue.
    pub fn enter(&self, provider: &Arc<Provider>, urgency: Urgency, source: RunSource) -> Ticket {
        let (answer, turn) = oneshot::channel();
        let id = self.shared.with(|state, now| {
            let id = state.queue.enter(&provider.name, &provider.issuer, (urgency, source), now);
            state.tickets.insert(id, answer);
            id
        });
        Ticket::new(&self.shared, provider, id, turn)
    }

    /// The pause of the provider's issuer, during which no run starts that a caller waits for; `None`: it is not paused.
    pub fn throttled(&self, provider: &Arc<Provider>) -> Option<Throttled> {
        let retry_after = self.paused(provider)?;
        Some(Throttled { provider: Arc::clone(provider), of_key: false, retry_after })
    }

    /// How long the pause of the provider's issuer still lasts; `None`: it is not paused.
    pub fn paused(&self, provider: &Provider) -> Option<Duration> {
        let now = self.shared.clock.now().boot;
        self.shared.state().queue.paused(&provider.issuer.name, now)
    }
}
