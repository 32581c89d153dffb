//! Shutdown: no new work, responses for the callers that wait, and a deadline.

use std::time::Duration;

use tonic_health::ServingStatus;

use super::{Bound, health::SERVICES};
use credbroker_observe::trace;
use credbroker_server::Keeper;

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

impl Bound {
    /// Shuts down, in at most [`GRACE`]: health reports it first, then runs are ended and their callers get `DRAINING`,
    /// other requests are answered, and connections close.
    pub async fn drain(self) -> Drained {
        for service in SERVICES {
            self.health.set_service_status(service, ServingStatus::NotServing).await;
        }
        self.health.set_service_status("", ServingStatus::NotServing).await;
        self.withdraw().await;
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

    /// Removes the names of the sockets: new clients find none, and retry until the next broker listens.
    async fn withdraw(&self) {
        let keepers: Vec<_> = self.sockets.iter().filter_map(|socket| socket.keeper.clone()).collect();
        let withdrawn = tokio::task::spawn_blocking(move || keepers.iter().for_each(Keeper::withdraw));
        // A mount that hangs does not delay the drain.
        drop(tokio::time::timeout(WITHDRAWAL, withdrawn).await);
    }
}
