//! A broker whose parts are connected.

use std::{path::PathBuf, sync::Arc};

use tokio::sync::watch;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic_health::{ServingStatus, server::HealthReporter};

use super::{
    ConfigPlace, LogQueue, ReloadRequest, ServiceManager, ServiceNotification,
    audit_file::AuditFile,
    essential::Essentials,
    health::{SERVICES, report_configuration, report_hub},
    listening::OpenSocket,
    monitor::OpenMonitor,
    reload::{Adopter, Follower},
    watchdog,
};
use credbroker_cache::CredentialCache;
use credbroker_config::Sources;
use credbroker_fleet::{hub::HubReader, resolver::Resolver};
use credbroker_observe::{
    audit::Audit,
    clock::{Beat, Clock},
};
use credbroker_runner::{LiveRuns, ProcessRunner, reap_orphans};
use credbroker_server::{Acceptor, Clusters, ReloadState};

/// A broker that listens but does not serve yet.
#[derive(Debug)]
pub struct Bound {
    pub(super) sockets: Vec<OpenSocket>,
    pub(super) acceptor: Arc<Acceptor>,
    pub(super) audit: Audit,
    pub(super) audit_file: Option<AuditFile>,
    /// `None`: the broker does not write the log of the process.
    pub(super) log: Option<LogQueue>,
    pub(super) cache: CredentialCache<ProcessRunner>,
    pub(super) resolver: Arc<Resolver>,
    pub(super) hub: Arc<HubReader<ProcessRunner>>,
    pub(super) clusters: Clusters<ProcessRunner>,
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
    /// Where the broker calls itself. `None`: its socket has no name.
    pub(super) own_socket: Option<PathBuf>,
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
        let cache = self.cache.clone();
        self.essentials.spawn("credential refresher", async move { cache.keep_fresh(beat).await });
        let resolver = Arc::clone(&self.resolver);
        self.essentials.spawn("plugin file watcher", async move { resolver.keep_looking(beat).await });
        let (hub, fleet, health) =
            (Arc::clone(&self.hub), Arc::clone(&self.adopter.fleet), self.health.clone());
        let resolver = Arc::clone(&self.resolver);
        self.essentials.spawn("hub reader", async move {
            tokio::select! {
                () = hub.run() => {}
                () = report_hub(&fleet, &resolver, &health) => {}
            }
        });
        let clusters = self.clusters.clone();
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
            let (acceptor, socket) = (Arc::clone(&self.acceptor), self.own_socket.clone());
            self.essentials.spawn("systemd notifier", async move {
                let connect = || watchdog::connect(socket.as_deref(), &acceptor);
                watchdog::report(connect, manager.watchdog, ServiceNotification::notify).await;
            });
        }
        if let Some(log) = self.log.take() {
            self.essentials.spawn("log writer", async move { log.ended().await });
        }
        if let Some(file) = self.audit_file.take() {
            self.essentials.spawn("audit writer", async move { file.ended().await });
        }
        let acceptor = Arc::clone(&self.acceptor);
        self.essentials.spawn("connection watchdog", async move { acceptor.watch_over(beat).await });
        for socket in &self.sockets {
            if let Some(keeper) = socket.keeper.clone() {
                let newest = socket.newest.clone();
                self.essentials.spawn("socket watcher", async move { keeper.run(&newest, beat).await });
            }
            let (acceptor, listener) = (Arc::clone(&self.acceptor), socket.listener);
            let newest = socket.newest.subscribe();
            self.essentials.spawn("accept loop", async move { acceptor.run(listener, newest).await });
        }
        self.essentials.ended().await
    }
}

impl Bound {
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
}
