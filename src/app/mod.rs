//! The only place that wires: production and tests build the broker here.

mod drain;
mod edges;
mod essential;
mod filter;
mod hardening;
mod journal;
mod limits;
mod listening;
mod logs;
mod monitor;
mod records;
mod reload;
mod render;
mod signals;
mod systemd;
mod telemetry;
mod watchdog;

use std::{
    io,
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::sync::watch;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic_health::{ServingStatus, server::HealthReporter};
use tracing::warn;

use crate::{
    access::Policy,
    audit::Audit,
    cache::{CacheParts, CredentialCache, VerifyFn},
    clock::Clock,
    config::{AuditTo, Config, Sources},
    exec::{LiveRuns, ProcessRunner, RunLimits, RunnerParts, reap_orphans},
    fleet::{Fleet, HubState},
    hub::{HubParts, HubReader},
    metrics::Metrics,
    resolver::Resolver,
    server::{
        Acceptor, Admission, BrokerInfo, Clusters, HealthChecks, MonitorParts, ProviderNames, ReloadState,
        SocketError, encode, record_runs, services,
    },
    verify::{ApiVerifier, Verifier as _},
};
use essential::Essentials;
use listening::OpenSocket;
use monitor::OpenMonitor;
use reload::{Adopter, Follower, Started};

pub use drain::{Drained, GRACE};
pub use edges::{Edges, environment};
pub use filter::FilterProblem;
pub use hardening::harden;
pub use listening::{Listening, SocketSource, socket_options};
pub use logs::LogQueue;
pub use reload::{ConfigPlace, ReloadRequest};
pub use signals::Signals;
pub use systemd::{ServiceNotification, inherited_listeners};
pub use telemetry::{LogFormat, LogOptions, start as start_telemetry};

pub use crate::trace::start as start_traces;

/// The gRPC services under whose names health is reported, beside the empty one.
const SERVICES: [&str; 2] = ["credbroker.v1.CredentialBroker", "credbroker.v1.CredentialBrokerAdmin"];
/// The same of the hub that ClusterProfiles are read from.
const HUB_SERVICE: &str = "hub";
/// The same of the files of the configuration.
const CONFIGURATION_SERVICE: &str = "configuration";

/// Why the broker cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The file for audit records cannot be opened.
    #[error("cannot open the audit file `{}` (`audit.file`)", .path.display())]
    Audit {
        /// As configured.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// tokio cannot use the listener.
    #[error("cannot listen on the socket")]
    Listen(#[source] io::Error),
    /// Metrics cannot be served there.
    #[error("cannot serve metrics on {address}")]
    Metrics {
        /// `metrics.listen`.
        address: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// The socket cannot be published.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// The group in `listen.group` does not exist.
    #[error("`listen.group`: group `{name}` not found on this machine; see `getent group`")]
    UnknownGroup {
        /// As configured.
        name: String,
    },
}

/// A broker that listens but does not serve yet.
#[derive(Debug)]
pub struct Bound {
    sockets: Vec<OpenSocket>,
    acceptor: Arc<Acceptor>,
    audit: Audit,
    cache: CredentialCache<ProcessRunner>,
    resolver: Arc<Resolver>,
    hub: Arc<HubReader<ProcessRunner>>,
    clusters: Clusters<ProcessRunner>,
    adopter: Arc<Adopter>,
    clock: Arc<dyn Clock>,
    /// Which configuration is in force.
    configuration: watch::Sender<Arc<ReloadState>>,
    reload: ReloadRequest,
    /// `None`: the files are not followed.
    follow: Option<(ConfigPlace, Sources)>,
    /// `None`: metrics are not served.
    monitor: Option<OpenMonitor>,
    /// The broker's own socket, and how often systemd must hear of it.
    watchdog: Option<(PathBuf, Duration)>,
    health: HealthReporter,
    essentials: Essentials,
    reaps_orphans: bool,
    tasks: TaskTracker,
    draining: CancellationToken,
}

/// Asks API servers about credentials.
fn verify() -> VerifyFn {
    let verifier = Arc::new(ApiVerifier::default());
    Arc::new(move |issued, cluster| {
        let verifier = Arc::clone(&verifier);
        Box::pin(async move { verifier.verify(issued, cluster).await })
    })
}

/// Builds the broker of `config`. Must be called within a tokio runtime.
///
/// # Errors
///
/// [`BuildError`]: nothing was started, and no file of another process was changed.
pub fn build(config: Config, listening: Vec<Listening>, edges: Edges) -> Result<Bound, BuildError> {
    let audit = audit(&config.audit, &edges)?;
    let sockets = listening.into_iter().map(Listening::open).collect::<Result<Vec<_>, _>>()?;

    let (tasks, draining, jitter) = (TaskTracker::new(), CancellationToken::new(), edges.jitter);
    let metrics = Arc::<Metrics>::default();
    let scheduler = limits::scheduler(&config.limits, Arc::clone(&edges.clock), jitter);
    let live_runs = LiveRuns::default();
    let cache = CredentialCache::new(CacheParts {
        runner: runner((edges.launcher, edges.scratch), &tasks, &live_runs),
        scheduler: scheduler.clone(),
        encode,
        verify: verify(),
        on_run: record_runs(audit.clone()),
        metrics: Arc::clone(&metrics),
        clock: Arc::clone(&edges.clock),
        jitter,
        epoch: edges.epoch,
        entries: limits::entries(&config.limits),
        tasks: tasks.clone(),
        draining: draining.clone(),
    });
    let health = HealthReporter::new();
    let started = Started::of(&config);
    let policies = watch::Sender::new(Arc::new(Policy::new(config.access)));
    let listeners = config.listen.iter().map(|listen| listen.name.as_str().into()).collect();
    let providers = Arc::new(config.providers);
    let section = config.cluster_profiles;
    let rules = section.as_ref().map(|section| section.rules).unwrap_or_default();
    let fleet = Arc::new(Fleet::new(Arc::clone(&providers), rules));
    let read_fleet = section.is_some().then(|| Arc::clone(&fleet));
    let resolver = Arc::new(Resolver::new(Arc::clone(&providers), read_fleet));
    let clusters =
        Clusters::new(Arc::clone(&fleet), Arc::clone(&resolver), cache.clone(), Arc::clone(&edges.clock));
    let hub = {
        let (fleet, resolver, cache) = (Arc::clone(&fleet), Arc::clone(&resolver), cache.clone());
        let (tasks, draining) = (tasks.clone(), draining.clone());
        Arc::new(HubReader::new(section, HubParts { fleet, resolver, cache, jitter, tasks, draining }))
    };
    let adopter = Arc::new(Adopter {
        resolver: Arc::clone(&resolver),
        cache: cache.clone(),
        scheduler,
        fleet,
        hub: Arc::clone(&hub),
        metrics: Arc::clone(&metrics),
        policies: policies.clone(),
        started,
        limits: Mutex::new(config.limits),
    });
    let now = edges.clock.now().wall;
    let configuration = watch::Sender::new(Arc::new(ReloadState::started(config.files, now)));
    let monitor = config.metrics.as_ref().map(|listen| {
        let health = HealthChecks::new(cache.clone(), Arc::clone(&resolver));
        let (metrics, tasks, draining) = (Arc::clone(&metrics), tasks.clone(), draining.clone());
        let (started, configuration) = (now, configuration.subscribe());
        let names = ProviderNames { policies: policies.subscribe(), setting: listen.provider_names };
        let parts = MonitorParts { health, metrics, configuration, names, started, tasks, draining };
        OpenMonitor::at(&listen.address, parts)
    });
    let monitor = monitor.transpose()?;
    let paths: Vec<_> = sockets.iter().filter_map(|socket| socket.path.clone()).collect();
    let watchdog = paths.first().cloned().zip(edges.watchdog);
    let info = BrokerInfo { started: now, configuration: configuration.subscribe(), sockets: paths };
    let services = services(
        cache.clone(),
        Arc::clone(&resolver),
        clusters.clone(),
        health.clone(),
        info,
        (metrics, audit.clone()),
    );
    let admission = Admission { policies: policies.subscribe(), listeners, runs: live_runs };
    let bounds = limits::connections(&config.limits);
    let acceptor = Arc::new(Acceptor::new(services, admission, bounds, tasks.clone(), draining.clone()));
    warn_of_unknown_user(&acceptor);
    let essentials = Essentials::new(tasks.clone(), draining.clone());
    Ok(Bound {
        sockets,
        acceptor,
        audit,
        cache,
        resolver,
        hub,
        clusters,
        adopter,
        clock: edges.clock,
        configuration,
        reload: ReloadRequest::default(),
        follow: None,
        monitor,
        watchdog,
        health,
        essentials,
        reaps_orphans: edges.reaps_orphans,
        tasks,
        draining,
    })
}

impl Bound {
    /// Serves until [`drain`](Self::drain) is called. Returns earlier only with the name of an essential task that ended:
    /// then the broker must drain and the process must exit.
    pub async fn serve(&mut self) -> &'static str {
        for service in SERVICES {
            self.health.set_service_status(service, ServingStatus::Serving).await;
        }
        if self.reaps_orphans {
            self.essentials.spawn("reaper of orphans", reap_orphans());
        }
        let cache = self.cache.clone();
        self.essentials.spawn("credential refresher", async move { cache.keep_fresh().await });
        let resolver = Arc::clone(&self.resolver);
        self.essentials.spawn("plugin file watcher", async move { resolver.keep_looking().await });
        let (hub, fleet, health) =
            (Arc::clone(&self.hub), Arc::clone(&self.adopter.fleet), self.health.clone());
        let resolver = Arc::clone(&self.resolver);
        self.essentials.spawn("hub reader", async move {
            tokio::join!(hub.run(), report_hub(&fleet, &resolver, &health));
        });
        let clusters = self.clusters.clone();
        self.essentials.spawn("readiness reporter", async move { clusters.run().await });
        if let Some((place, sources)) = self.follow.take() {
            let (adopter, clock) = (Arc::clone(&self.adopter), Arc::clone(&self.clock));
            let (requests, state) = (self.reload.clone(), self.configuration.clone());
            let follower = Follower::new(place, sources, adopter, clock, requests, state);
            let (states, health) = (self.configuration.subscribe(), self.health.clone());
            self.essentials.spawn("configuration follower", async move {
                tokio::join!(follower.run(), report_configuration(states, &health));
            });
        }
        if let Some(monitor) = self.monitor.take() {
            self.essentials.spawn("metrics server", monitor.serve());
        }
        if let Some((socket, period)) = self.watchdog.clone() {
            self.essentials.spawn("systemd watchdog", async move { watchdog::feed(&socket, period).await });
        }
        let acceptor = Arc::clone(&self.acceptor);
        self.essentials.spawn("connection watchdog", async move { acceptor.watch_over().await });
        for socket in &self.sockets {
            if let Some(keeper) = socket.keeper.clone() {
                let newest = socket.newest.clone();
                self.essentials.spawn("socket watcher", async move { keeper.run(&newest).await });
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

fn runner((launcher, scratch): (PathBuf, PathBuf), tasks: &TaskTracker, live: &LiveRuns) -> ProcessRunner {
    let (limits, tasks, live) = (RunLimits::default(), tasks.clone(), live.clone());
    ProcessRunner::new(RunnerParts { limits, launcher, scratch, tasks, live })
}

fn warn_of_unknown_user(acceptor: &Acceptor) {
    if !acceptor.identifies_its_own() {
        warn!(
            "the broker's own user is not served: its uid is the one that the kernel uses for all users that it cannot map"
        );
    }
}

/// Where `to` says.
fn audit(to: &AuditTo, edges: &Edges) -> Result<Audit, BuildError> {
    let clock = Arc::clone(&edges.clock);
    match to {
        AuditTo::Nowhere => Ok(Audit::default()),
        AuditTo::Log => Ok(Audit::in_log(clock)),
        AuditTo::File(path) => {
            Audit::in_file(path, clock).map_err(|source| BuildError::Audit { path: path.clone(), source })
        }
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
