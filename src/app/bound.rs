//! A broker whose parts are connected: it serves until one of its essential tasks ends or it is drained.

use std::{sync::Arc, time::Duration};

use tokio::sync::{mpsc, watch};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic_health::{ServingStatus, server::HealthReporter};
use tracing::error;

use super::{
    audit_file::AuditFile,
    logs::LogQueue,
    reload::{Adopter, ConfigPlace, Follower, ReloadRequest},
    sockets::{OpenMonitor, OpenSocket},
    systemd::{self, ServiceManager, ServiceNotification},
};
use credbroker_config::Sources;
use credbroker_fleet::{Fleet, HubState, resolver::Resolver};
use credbroker_observe::{
    audit::Audit,
    clock::{Beat, Clock},
    trace,
};
use credbroker_runner::{LiveRuns, ProcessRunner, reap_orphans};
use credbroker_server::{Clusters, Gate, ReloadState};
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

/// The gRPC services under whose names health is reported, beside the empty one.
const SERVICES: [&str; 2] = ["credbroker.v1.CredentialBroker", "credbroker.v1.CredentialBrokerAdmin"];
/// The same of the hub that ClusterProfiles are read from.
const HUB_SERVICE: &str = "hub";
/// The same of the files of the configuration.
const CONFIGURATION_SERVICE: &str = "configuration";

/// A broker that listens but does not serve yet.
#[derive(Debug)]
pub struct Bound {
    pub(super) sockets: Vec<OpenSocket>,
    pub(super) acceptor: Arc<Acceptor<Gate<ProcessRunner>>>,
    pub(super) audit: Audit,
    pub(super) audit_file: Option<AuditFile>,
    /// `None`: the broker does not write the log of the process.
    pub(super) log: Option<LogQueue>,
    pub(super) clusters: Arc<Clusters<ProcessRunner>>,
    pub(super) adopter: Arc<Adopter>,
    pub(super) clock: Arc<dyn Clock>,
    /// Which configuration is in force.
    pub(super) configuration: watch::Sender<Arc<ReloadState>>,
    pub(super) reload: ReloadRequest,
    /// `None`: the files are not followed.
    pub(super) follow: Option<(ConfigPlace, Sources)>,
    /// `None`: metrics are not served.
    pub(super) monitor: Option<OpenMonitor>,
    /// Who gets notifications.
    pub(super) service_manager: Option<ServiceManager>,
    pub(super) health: HealthReporter,
    pub(super) essentials: Essentials,
    /// The plugin runs in progress, whose orphans are reaped. `None`: something else reaps them.
    pub(super) orphans: Option<LiveRuns>,
    pub(super) tasks: TaskTracker,
    pub(super) draining: CancellationToken,
}

impl Bound {
    /// Serves until [`drain`](Self::drain) is called. Returns earlier only with the name of an essential task that ended:
    /// then the broker must drain and the process must exit.
    pub async fn serve(&mut self) -> &'static str {
        for service in SERVICES {
            self.health.set_service_status(service, ServingStatus::Serving).await;
        }
        if let Some(runs) = self.orphans.take() {
            self.essentials.spawn("reaper of orphans", reap_orphans(runs));
        }
        let audit = self.audit.clone();
        self.essentials.spawn("counter of audit records", async move { audit.count_omitted().await });
        let beat = Beat::start();
        let cache = self.adopter.cache.clone();
        self.essentials.spawn("credential refresher", async move { cache.keep_fresh(beat).await });
        let resolver = Arc::clone(&self.adopter.resolver);
        self.essentials.spawn("plugin file watcher", async move { resolver.keep_looking(beat).await });
        let (adopter, health) = (Arc::clone(&self.adopter), self.health.clone());
        self.essentials.spawn("hub reader", async move {
            tokio::select! {
                () = adopter.hub.run() => {}
                () = report_hub(&adopter.fleet, &adopter.resolver, &health) => {}
            }
        });
        let clusters = Arc::clone(&self.clusters);
        self.essentials.spawn("readiness reporter", async move { clusters.run().await });
        if let Some((place, sources)) = self.follow.take() {
            let (adopter, clock) = (Arc::clone(&self.adopter), Arc::clone(&self.clock));
            let (requests, state) = (self.reload.clone(), self.configuration.clone());
            let follower = Follower::new(place, sources, adopter, clock, requests, state);
            let (states, health) = (self.configuration.subscribe(), self.health.clone());
            self.essentials.spawn("configuration follower", async move {
                tokio::select! {
                    () = follower.run() => {}
                    () = report_configuration(states, &health) => {}
                }
            });
        }
        if let Some(monitor) = self.monitor.take() {
            self.essentials.spawn("metrics server", monitor.serve());
        }
        if let Some(manager) = self.service_manager {
            let acceptor = Arc::clone(&self.acceptor);
            // Where the broker calls itself. `None`: its socket has no name.
            let socket = self.sockets.iter().find_map(|socket| socket.path.clone());
            self.essentials.spawn("systemd notifier", async move {
                let connect = || systemd::connect(socket.as_deref(), &acceptor);
                systemd::report(connect, manager.watchdog, ServiceNotification::notify).await;
            });
        }
        if let Some(log) = self.log.take() {
            self.essentials.spawn("log writer", async move { log.ended().await });
        }
        if let Some(file) = self.audit_file.take() {
            self.essentials.spawn("audit writer", async move { file.ended().await });
        }
        let acceptor = Arc::clone(&self.acceptor);
        self.essentials.spawn("connection watchdog", async move {
            acceptor.watch_over(|period| beat.next(period)).await;
        });
        for socket in &self.sockets {
            if let Some(keeper) = socket.keeper.clone() {
                let newest = socket.newest.clone();
                self.essentials.spawn("socket watcher", async move {
                    keeper.run(&newest, |period| beat.next(period)).await;
                });
            }
            let (acceptor, listener) = (Arc::clone(&self.acceptor), socket.listener);
            let newest = socket.newest.subscribe();
            self.essentials.spawn("accept loop", async move { acceptor.run(listener, newest).await });
        }
        self.essentials.ended().await
    }

    /// Follows the files of the configuration at `place` while the broker serves. `sources` are those that it was built
    /// from.
    pub fn follow(&mut self, place: ConfigPlace, sources: Sources) {
        self.follow = Some((place, sources));
    }

    /// Asks the broker to read its files again.
    pub fn reload_request(&self) -> ReloadRequest {
        self.reload.clone()
    }

    /// Which configuration is in force, and the problems of a newer one.
    pub fn configuration(&self) -> watch::Receiver<Arc<ReloadState>> {
        self.configuration.subscribe()
    }

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

/// Reports the health of the hub under a separate name: the broker itself continues without the hub.
async fn report_hub(fleet: &Fleet, resolver: &Resolver, health: &HealthReporter) {
    let mut states = fleet.hub_states();
    loop {
        let HubState { synced, problem } = states.borrow_and_update().clone();
        match problem {
            _ if resolver.fleet().is_none() => health.clone().clear_service_status(HUB_SERVICE).await,
            None if synced => health.set_service_status(HUB_SERVICE, ServingStatus::Serving).await,
            _ => health.set_service_status(HUB_SERVICE, ServingStatus::NotServing).await,
        }
        // The fleet keeps the sender alive.
        drop(states.changed().await);
    }
}

/// Reports whether the files are in force as they are, under a separate name: the broker continues with those before.
async fn report_configuration(mut states: watch::Receiver<Arc<ReloadState>>, health: &HealthReporter) {
    loop {
        let is_current = states.borrow_and_update().failure.is_none();
        let serving = if is_current { ServingStatus::Serving } else { ServingStatus::NotServing };
        health.set_service_status(CONFIGURATION_SERVICE, serving).await;
        // The broker keeps the sender alive.
        drop(states.changed().await);
    }
}

/// Starts essential tasks, and reports those that end before the broker drains.
#[derive(Debug)]
pub(super) struct Essentials {
    tasks: TaskTracker,
    draining: CancellationToken,
    ended: (mpsc::UnboundedSender<&'static str>, mpsc::UnboundedReceiver<&'static str>),
}

impl Essentials {
    pub(super) fn new(tasks: TaskTracker, draining: CancellationToken) -> Self {
        Self { tasks, draining, ended: mpsc::unbounded_channel() }
    }

    /// Runs `task` until the broker drains.
    pub(super) fn spawn(&self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        let end = EndReport { name, draining: self.draining.clone(), ended: self.ended.0.clone() };
        let task = self.draining.clone().run_until_cancelled_owned(task);
        self.tasks.spawn(async move {
            let _end = end;
            task.await;
        });
    }

    /// Waits for a task that returned or panicked, and returns its name. Pending while the broker drains.
    pub(super) async fn ended(&mut self) -> &'static str {
        match self.ended.1.recv().await {
            Some(name) => name,
            // Not reached: `self` holds a sender.
            None => std::future::pending().await,
        }
    }
}

/// Reports the end of its task when dropped, also after a panic.
struct EndReport {
    name: &'static str,
    draining: CancellationToken,
    ended: mpsc::UnboundedSender<&'static str>,
}

impl Drop for EndReport {
    fn drop(&mut self) {
        if !self.draining.is_cancelled() {
            error!(task = self.name, "an essential task has ended");
            // Without a receiver, the broker has ended.
            let _unheard = self.ended.send(self.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn essentials() -> (Essentials, TaskTracker, CancellationToken) {
        let (tasks, draining) = (TaskTracker::new(), CancellationToken::new());
        (Essentials::new(tasks.clone(), draining.clone()), tasks, draining)
    }

    #[tokio::test]
    async fn a_task_that_returns_or_panics_is_reported_by_name() {
        let (mut essentials, _tasks, _draining) = essentials();
        essentials.spawn("goes on", std::future::pending());
        essentials.spawn("returns", std::future::ready(()));
        assert_eq!(essentials.ended().await, "returns");
        essentials.spawn("panics", async { panic!("on purpose") });
        assert_eq!(essentials.ended().await, "panics");
    }

    #[tokio::test]
    async fn the_end_of_the_broker_is_not_a_failure() {
        let (mut essentials, tasks, draining) = essentials();
        essentials.spawn("goes on", std::future::pending());
        draining.cancel();
        tasks.close();
        tasks.wait().await;
        assert!(essentials.ended.1.try_recv().is_err());
    }
}
