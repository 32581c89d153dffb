//! A broker whose parts are connected: it serves until one of its essential tasks ends or it is drained.

use std::{future::pending, sync::Arc, time::Duration};

use futures_util::future::{BoxFuture, select_all};
use tokio::sync::{Notify, watch};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::error;

use super::sockets::OpenSocket;
use credbroker_observe::{audit::Audit, trace};
use credbroker_runner::ProcessRunner;
use credbroker_server::{Gate, ReloadState};
use credbroker_uds_server::{Acceptor, Keeper};

/// How long a drain may take.
pub const GRACE: Duration = Duration::from_secs(10);

/// How long the removal of the sockets' names may take.
const WITHDRAWAL: Duration = Duration::from_millis(500);

/// How long the last audit records and traces may take.
const RECORDS: Duration = Duration::from_secs(1);

/// How a drain ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Drained {
    /// All work ended in time.
    Whole,
    /// The deadline passed first, and the rest is cut off.
    CutOff {
        /// The number of connections and runs that were cut off.
        left: usize,
    },
}

/// The tasks without which the broker cannot go on, by their names.
pub(super) type Essentials = Vec<(&'static str, BoxFuture<'static, ()>)>;

/// A broker that listens but does not serve yet.
#[expect(missing_debug_implementations, reason = "its tasks have none")]
pub struct Bound {
    pub(super) sockets: Vec<OpenSocket>,
    pub(super) acceptor: Arc<Acceptor<Gate<ProcessRunner>>>,
    pub(super) audit: Audit,
    /// Which configuration is in force.
    pub(super) configuration: watch::Sender<Arc<ReloadState>>,
    pub(super) reload: Arc<Notify>,
    /// Cancelled first: the health of the broker says that it stops.
    pub(super) stopping: CancellationToken,
    /// Those that run when it serves.
    pub(super) essentials: Essentials,
    pub(super) tasks: TaskTracker,
    pub(super) draining: CancellationToken,
}

impl Bound {
    /// Serves until [`drain`](Self::drain) is called. Returns earlier only with the name of an essential task that ended:
    /// then the broker must drain and the process must exit.
    pub async fn serve(&mut self) -> &'static str {
        run(std::mem::take(&mut self.essentials), &self.tasks, &self.draining).await
    }

    /// Asks the broker to read its files again when it is notified, as SIGHUP does.
    pub fn reload_request(&self) -> Arc<Notify> {
        Arc::clone(&self.reload)
    }

    /// Which configuration is in force, and the problems of a newer one.
    pub fn configuration(&self) -> watch::Receiver<Arc<ReloadState>> {
        self.configuration.subscribe()
    }

    /// Shuts down, in at most [`GRACE`]: health reports it first, then runs are ended and their callers get `DRAINING`,
    /// other requests are answered, and connections close.
    pub async fn drain(self) -> Drained {
        self.stopping.cancel();
        withdraw(&self.sockets).await;
        self.draining.cancel();
        // What waits at a socket of systemd's is for the next broker.
        for socket in self.sockets.iter().filter(|socket| !socket.is_inherited) {
            self.acceptor.accept_the_rest(socket.listener, &socket.newest.borrow());
        }
        self.tasks.close();
        let drained = tokio::time::timeout(GRACE, self.tasks.wait()).await;
        drop(self.sockets);
        let audit = self.audit;
        // Without a result, the runtime ends, and the rest of the records is lost.
        let records = tokio::task::spawn_blocking(move || audit.flush(RECORDS));
        drop(tokio::join!(records, trace::stop(RECORDS)));
        drained.map_or(Drained::CutOff { left: self.tasks.len() }, |()| Drained::Whole)
    }
}

/// Removes the names of `sockets`: new clients find none, and retry until the next broker listens.
async fn withdraw(sockets: &[OpenSocket]) {
    let keepers: Vec<_> = sockets.iter().filter_map(|socket| socket.keeper.clone()).collect();
    let withdrawn = tokio::task::spawn_blocking(move || keepers.iter().for_each(Keeper::withdraw));
    // A mount that hangs does not delay the drain.
    drop(tokio::time::timeout(WITHDRAWAL, withdrawn).await);
}

/// Runs `essentials` until the broker drains. Returns earlier only with the name of one that returned or panicked.
async fn run(essentials: Essentials, tasks: &TaskTracker, draining: &CancellationToken) -> &'static str {
    let running = essentials.into_iter().map(|(name, task)| {
        let task = tasks.spawn(draining.clone().run_until_cancelled_owned(task));
        Box::pin(async move {
            drop(task.await);
            name
        })
    });
    let (name, ..) = select_all(running).await;
    if draining.is_cancelled() {
        return pending().await;
    }
    error!(task = name, "an essential task has ended");
    name
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn a_task_that_returns_or_panics_is_reported_by_name() {
        for (name, task) in
            [("returns", async {}.boxed()), ("panics", async { panic!("on purpose") }.boxed())]
        {
            let essentials = vec![("goes on", pending().boxed()), (name, task)];
            assert_eq!(run(essentials, &TaskTracker::new(), &CancellationToken::new()).await, name);
        }
    }

    #[tokio::test]
    async fn the_end_of_the_broker_is_not_a_failure() {
        let (tasks, draining) = (TaskTracker::new(), CancellationToken::new());
        let mut running = Box::pin(run(vec![("goes on", pending().boxed())], &tasks, &draining));
        assert!(futures_util::poll!(&mut running).is_pending());
        draining.cancel();
        tasks.close();
        tasks.wait().await;
        assert!(futures_util::poll!(&mut running).is_pending());
    }
}
