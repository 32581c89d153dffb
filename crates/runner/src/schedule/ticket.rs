//! A place in the queue.

use std::{fmt, sync::Arc, time::Duration};

use tokio::sync::oneshot;

use super::{Cause, RunPermit, SharedScheduler, Urgency};
use crate::{RunError, error::seconds};
use credbroker_plugin::Provider;

/// A place in the queue. Dropping it leaves the queue.
#[derive(Debug)]
#[must_use = "dropping a ticket leaves the queue"]
pub struct Ticket {
    handle: TicketHandle,
    turn: oneshot::Receiver<Result<RunPermit, Duration>>,
}

/// Changes and shows a place in the queue, without keeping it.
#[derive(Clone, Debug)]
pub struct TicketHandle {
    shared: Arc<SharedScheduler>,
    provider: Arc<Provider>,
    id: u64,
}

/// The issuer is paused, or only the key, so the run that a caller waits for does not start.
#[derive(Clone, Debug)]
pub struct Throttled {
    /// The provider whose run it is.
    pub provider: Arc<Provider>,
    /// Only the key is paused.
    pub of_key: bool,
    /// How long the pause still lasts.
    pub retry_after: Duration,
}

/// What a run waits for. Its `Display` is a clause for a message.
#[derive(Clone, Debug)]
pub struct WaitsFor {
    /// The provider whose run it is.
    pub provider: Arc<Provider>,
    /// Why it waits.
    pub cause: Cause,
    /// The number of other queued runs of the provider in the same class, before or behind it.
    pub others: usize,
}

impl Ticket {
    pub(super) fn new(
        shared: &Arc<SharedScheduler>,
        provider: &Arc<Provider>,
        id: u64,
        turn: oneshot::Receiver<Result<RunPermit, Duration>>,
    ) -> Self {
        Self { handle: TicketHandle { shared: Arc::clone(shared), provider: Arc::clone(provider), id }, turn }
    }

    /// A handle to change or show the place while [`turn`](Self::turn) waits.
    pub fn handle(&self) -> TicketHandle {
        self.handle.clone()
    }

    /// Waits for the turn. Dropping the future leaves the queue, and returns the slot if it was granted meanwhile.
    ///
    /// # Errors
    ///
    /// [`Throttled`]: the issuer is paused, or becomes paused. Only for [`Urgency::Waited`]; other runs wait for the end of
    /// the pause.
    pub async fn turn(mut self) -> Result<RunPermit, Throttled> {
        match (&mut self.turn).await {
            Ok(Ok(permit)) => Ok(permit),
            Ok(Err(retry_after)) => {
                Err(Throttled { provider: Arc::clone(&self.handle.provider), of_key: false, retry_after })
            }
            // Not reached: the queue keeps the sender until it answers or this ticket is dropped.
            Err(_closed) => std::future::pending().await,
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.handle.shared.leave(self.handle.id);
    }
}

impl TicketHandle {
    /// Queues the run for one more caller too: it starts in the first turn of any of them, or in its own. Has no effect once
    /// the run has its turn.
    ///
    /// # Errors
    ///
    /// [`Throttled`]: the issuer is paused. The run is still queued.
    pub fn join(&self, peer: u64) -> Result<(), Throttled> {
        let joined = self.shared.with(|state, now| state.queue.join(self.id, peer, now));
        let provider = || Arc::clone(&self.provider);
        joined.map_err(|retry_after| Throttled { provider: provider(), of_key: false, retry_after })
    }

    /// Undoes one [`join`](Self::join). A run without callers is background work.
    pub fn part(&self, peer: u64) {
        self.shared.with(|state, now| state.queue.part(self.id, peer, now));
    }

    /// Changes the urgency that a queued run has without callers. The run keeps its order of entry.
    pub fn set_floor(&self, floor: Urgency) {
        self.shared.with(|state, now| state.queue.set_floor(self.id, floor, now));
    }

    /// What the run waits for, for the answer to a caller in `peer`; `None`: it has its turn, or left the queue.
    pub fn waits_for(&self, peer: Option<u64>) -> Option<WaitsFor> {
        let now = self.shared.clock.now().boot;
        let (cause, others) = self.shared.state().queue.waits_for(self.id, peer, now)?;
        Some(WaitsFor { provider: Arc::clone(&self.provider), cause, others })
    }
}

impl Throttled {
    /// The error of a run of the plugin `command`.
    pub fn into_error(self, command: Arc<str>) -> RunError {
        let Self { provider, of_key, retry_after } = self;
        let (provider, issuer) = (Arc::clone(&provider.name), Arc::clone(&provider.issuer.name));
        RunError::Throttled { command, provider, issuer, of_key, retry_after }
    }
}

impl fmt::Display for WaitsFor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let issuer = &self.provider.issuer.name;
        match self.cause {
            Cause::Slots { runs } => write!(f, "all run slots are in use (`limits.pluginRuns`: {runs})"),
            Cause::ProcessShare { runs } => {
                write!(
                    f,
                    "this process has as many runs as it may have (`limits.pluginRunsPerProcess`: {runs})"
                )
            }
            Cause::UidShare { runs } => {
                write!(
                    f,
                    "the processes of this uid have as many runs as they may have now ({runs}; `limits.pluginRunsPerUid`, and three quarters of `limits.pluginRuns` while another uid waits)"
                )
            }
            Cause::Concurrency { runs } => {
                write!(f, "issuer `{issuer}` is at its limit of runs at a time ({runs})")
            }
            Cause::Rate { runs } => {
                write!(f, "issuer `{issuer}` is at its limit of runs in a second ({runs})")
            }
            Cause::Paused { left } => {
                write!(
                    f,
                    "issuer `{issuer}` asked for fewer runs and is paused for another {}",
                    seconds(left)
                )
            }
            Cause::Probe => {
                write!(f, "issuer `{issuer}` asked for fewer runs, and one run is trying it again")
            }
            Cause::SlowStart => {
                write!(f, "issuer `{issuer}` asked for fewer runs, and its runs start slowly at first")
            }
        }?;
        match self.others {
            0 => Ok(()),
            1 => write!(f, "; 1 other run of the provider waits"),
            others => write!(f, "; {others} other runs of the provider wait"),
        }
    }
}
