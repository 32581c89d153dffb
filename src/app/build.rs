//! Connects all parts of a broker, which serves until one of its essential tasks ends or it is drained.

use std::{
    future::pending,
    mem::take,
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use anyhow::{Context as _, anyhow};
use futures_util::{
    FutureExt as _,
    future::{BoxFuture, select_all},
};
use tokio::sync::{Notify, watch};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::{error, warn};

use super::{
    audit_file::AuditFile,
    edges::Edges,
    proxy::{self, ProxyOptions, ProxyParts, RunningProxy},
    reload::{Adopter, Follower, connection_limits, entry_limits, follow_accounts, note_shared, run_limit},
    sockets::{Listening, OpenSocket, reach, serve_metrics},
    systemd,
};
use credbroker_cache::{CacheParts, CredentialCache};
use credbroker_client::Socket;
use credbroker_config::{AuditTo, Config};
use credbroker_fleet::{
    ApiVerifier, Fleet,
    hub::{HubParts, HubReader},
    resolver::Resolver,
};
use credbroker_observe::{
    audit::Audit,
    clock::{Beat, Clock},
    metrics::Metrics,
    trace,
};
use credbroker_plugin::access::Policy;
use credbroker_runner::{
    LiveRuns, ProcessRunner, RunLimits, RunnerParts, Scheduler, check_scratch, reap_orphans,
};
use credbroker_server::{
    Broker, Clusters, Gate, Monitor, MonitorParts, ReloadState, WriteMetrics, encode, record_runs,
};
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
    sockets: Vec<OpenSocket>,
    acceptor: Arc<Acceptor<Gate<ProcessRunner>>>,
    audit: Audit,
    configuration: watch::Sender<Arc<ReloadState>>,
    reload: Arc<Notify>,
    /// Cancelled first: the health of the broker says that it stops.
    stopping: CancellationToken,
    essentials: Essentials,
    tasks: TaskTracker,
    draining: CancellationToken,
    proxy: Option<RunningProxy>,
}

/// What serves in the foreground until it is drained: a broker, or a proxy.
pub trait Daemon {
    /// Serves until [`drain`](Self::drain) is called. Returns earlier only with the name of an essential task that ended:
    /// then it must be drained and the process must exit.
    fn serve(&mut self) -> impl Future<Output = &'static str> + Send;

    /// Asks it to read its files again when it is notified, as SIGHUP does.
    fn reload_request(&self) -> Arc<Notify>;

    /// Shuts down.
    fn drain(self) -> impl Future<Output = Drained> + Send;
}

impl Bound {
    /// Which configuration is active, and the problems of a newer one.
    pub fn configuration(&self) -> watch::Receiver<Arc<ReloadState>> {
        self.configuration.subscribe()
    }
}

impl Daemon for Bound {
    async fn serve(&mut self) -> &'static str {
        run(take(&mut self.essentials), &self.tasks, &self.draining).await
    }

    fn reload_request(&self) -> Arc<Notify> {
        Arc::clone(&self.reload)
    }

    /// In at most [`GRACE`]: health reports it first, then runs are ended and their callers get `DRAINING`, other requests
    /// are answered, and connections close.
    async fn drain(self) -> Drained {
        self.stopping.cancel();
        let proxy = self.proxy.as_ref();
        let keepers = self.sockets.iter().filter_map(|socket| socket.keeper.clone());
        withdraw(keepers.chain(proxy.into_iter().flat_map(RunningProxy::keepers)).collect()).await;
        self.draining.cancel();
        // What waits at a socket of systemd's is for the next broker.
        for socket in self.sockets.iter().filter(|socket| !socket.is_inherited) {
            self.acceptor.accept_the_rest(socket.listener, &socket.newest.borrow());
        }
        self.tasks.close();
        if let Some(proxy) = &self.proxy {
            proxy.drain().await;
        }
        let drained = tokio::time::timeout(GRACE, self.tasks.wait()).await;
        drop(self.sockets);
        end_records(self.audit).await;
        drained.map_or(Drained::CutOff { left: self.tasks.len() }, |()| Drained::Whole)
    }
}

/// Removes the names of `sockets`: new clients find none, and retry until the next broker listens.
pub(super) async fn withdraw(keepers: Vec<Keeper>) {
    let withdrawn = tokio::task::spawn_blocking(move || keepers.iter().for_each(Keeper::withdraw));
    // A mount that hangs does not delay the drain.
    drop(tokio::time::timeout(WITHDRAWAL, withdrawn).await);
}

/// Writes the last audit records and traces.
pub(super) async fn end_records(audit: Audit) {
    // Without a result, the runtime ends, and the rest of the records is lost.
    let records = tokio::task::spawn_blocking(move || audit.flush(RECORDS));
    drop(tokio::join!(records, trace::stop(RECORDS)));
}

/// Runs `essentials` until the broker drains. Returns earlier only with the name of one that returned or panicked.
pub(super) async fn run(
    essentials: Essentials,
    tasks: &TaskTracker,
    draining: &CancellationToken,
) -> &'static str {
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

/// Builds the broker of `config`. Must be called within a tokio runtime.
///
/// # Errors
///
/// Nothing was started, and no file of another process was changed.
#[expect(clippy::too_many_lines, reason = "it connects all parts, in their order")]
pub fn build(mut config: Config, listening: Vec<Listening>, edges: Edges) -> anyhow::Result<Bound> {
    let base = edges.scratch.display();
    check_scratch(&edges.scratch).map_err(|cause| {
        anyhow!(
            "cannot make working directories for plugins in {base}: {cause}; mount a writable volume there, such as an emptyDir in memory, or set TMPDIR to a directory that is writable"
        )
    })?;
    let (mut essentials, bounds) = (Essentials::new(), config.limits);
    let audit = audit(&config.audit, "`audit.file`", &edges.clock, &mut essentials)?;
    let sockets = listening.into_iter().map(Listening::open).collect::<Result<Vec<_>, _>>()?;

    let (tasks, draining, jitter) = (TaskTracker::new(), CancellationToken::new(), edges.jitter);
    let (metrics, live_runs, clock) = (Arc::<Metrics>::default(), LiveRuns::default(), edges.clock);
    let scheduler = Scheduler::new(run_limit(&bounds), Arc::clone(&clock), jitter);
    scheduler.set_interactive(bounds.interactive_runs.get());
    let cache = CredentialCache::new(CacheParts {
        runner: runner((edges.launcher, edges.scratch), &tasks, &live_runs).into(),
        scheduler: scheduler.clone(),
        encode,
        verify: ApiVerifier::function(),
        on_run: record_runs(audit.clone()),
        metrics: Arc::clone(&metrics),
        clock: Arc::clone(&clock),
        jitter,
        epoch: edges.epoch,
        entries: entry_limits(&bounds),
        tasks: tasks.clone(),
        draining: draining.clone(),
    });
    let policies = watch::Sender::new(Arc::new(Policy::new(take(&mut config.access))));
    let listeners = config.listen.iter().map(|listen| listen.name.as_str().into()).collect();
    let providers = Arc::new(take(&mut config.providers));
    note_shared(&providers, &policies.borrow());
    let section = config.cluster_profiles.take();
    let rules = section.as_ref().map(|section| section.rules).unwrap_or_default();
    let fleet = Arc::new(Fleet::new(Arc::clone(&providers), rules));
    let read_fleet = section.is_some().then(|| Arc::clone(&fleet));
    let resolver = Arc::new(Resolver::new(providers, read_fleet));
    let clusters =
        Clusters::new(Arc::clone(&fleet), Arc::clone(&resolver), cache.clone(), Arc::clone(&clock));
    let clusters = Arc::new(clusters);
    let parts = HubParts {
        fleet: Arc::clone(&fleet),
        resolver: Arc::clone(&resolver),
        cache: cache.clone(),
        jitter,
        tasks: tasks.clone(),
        draining: draining.clone(),
    };
    let (now, reload) = (clock.now().wall, Arc::<Notify>::default());
    let configuration = watch::Sender::new(Arc::new(ReloadState::started(take(&mut config.files), now)));
    let paths: Vec<_> = sockets.iter().filter_map(|socket| socket.path.clone()).collect();
    let broker_socket = paths.first().cloned();
    let broker = Arc::new(Broker {
        cache: cache.clone(),
        resolver: Arc::clone(&resolver),
        clusters: Arc::clone(&clusters),
        metrics,
        audit: audit.clone(),
        policies: policies.subscribe(),
        configuration: configuration.subscribe(),
        started: now,
        sockets: paths,
        stopping: CancellationToken::new(),
    });
    let adopter = Arc::new(Adopter {
        resolver: Arc::clone(&resolver),
        cache: cache.clone(),
        scheduler,
        fleet,
        hub: HubReader::new(section, parts),
        policies,
        limits: Mutex::new(bounds),
        started: config,
        has_proxy: edges.proxy.is_some(),
    });
    let stopping = broker.stopping.clone();
    let monitored = Arc::clone(&broker);
    let (gate, bounds) = (Gate::new(broker, listeners, live_runs.clone()), connection_limits(&bounds));
    let acceptor = Arc::new(Acceptor::new(Arc::new(gate), bounds, tasks.clone(), draining.clone()));
    let beat = Beat::start();
    let of_process = (audit.clone(), Arc::clone(&clock), beat, tasks.clone(), draining.clone());
    let proxy = edges.proxy.map(|options| proxy_beside(options, broker_socket.clone(), &adopter, of_process));
    let proxy = proxy.transpose()?.map(|(proxy, of_proxy)| {
        essentials.extend(of_proxy);
        proxy
    });
    let of_proxy = proxy.as_ref().map(RunningProxy::metrics);
    essentials.extend(metrics_server(&adopter.started, (monitored, of_proxy), (&tasks, &draining))?);
    essentials.extend(working(&adopter, clusters, beat));
    essentials.extend(serving(&sockets, &acceptor, beat));
    let orphans = edges.reaps_orphans.then(|| ("reaper of orphans", reap_orphans(live_runs).boxed()));
    let log = edges.log.map(|log| ("log writer", async move { log.ended().await }.boxed()));
    essentials.extend(orphans.into_iter().chain(log));
    if let Some(manager) = edges.service_manager {
        let (path, acceptor) = (broker_socket, Arc::clone(&acceptor));
        let connect = move || systemd::connect(path.clone(), Arc::clone(&acceptor));
        let notifying = systemd::report(connect, manager.watchdog, systemd::notify);
        essentials.push(("systemd notifier", notifying.boxed()));
    }
    if let Some((place, sources)) = edges.follow {
        let (requests, state) = (Arc::clone(&reload), configuration.clone());
        let follower = Follower::new(place, sources, adopter, clock, requests, state);
        essentials.push(("configuration follower", async move { follower.run().await }.boxed()));
    }
    Ok(Bound {
        sockets,
        acceptor,
        audit,
        configuration,
        reload,
        stopping,
        essentials,
        tasks,
        draining,
        proxy,
    })
}

/// The server of metrics and health, if the configuration has one.
fn metrics_server(
    config: &Config,
    (broker, proxy): (Arc<Broker<ProcessRunner>>, Option<WriteMetrics>),
    (tasks, draining): (&TaskTracker, &CancellationToken),
) -> anyhow::Result<Essentials> {
    let Some(listen) = &config.metrics else { return Ok(Essentials::new()) };
    let parts = MonitorParts {
        started: broker.started,
        broker: Some(broker),
        proxy,
        reach: reach(&listen.address),
        names: listen.provider_names,
        tasks: tasks.clone(),
        draining: draining.clone(),
    };
    Ok(vec![("metrics server", serve_metrics(&listen.address, Monitor::new(parts))?.boxed())])
}

/// The proxy in the process of the broker, whose client it is like any other.
fn proxy_beside(
    options: ProxyOptions,
    socket: Option<PathBuf>,
    adopter: &Arc<Adopter>,
    (audit, clock, beat, tasks, draining): (Audit, Arc<dyn Clock>, Beat, TaskTracker, CancellationToken),
) -> anyhow::Result<(RunningProxy, Essentials)> {
    let socket = socket.context("the proxy cannot reach the broker: its socket has no name")?;
    let resolver = Arc::clone(&adopter.resolver);
    proxy::start(ProxyParts {
        options,
        broker: credbroker_client::Broker::at(Socket::at(socket)),
        policies: adopter.policies.subscribe(),
        providers: Box::new(move || resolver.providers()),
        connections: adopter.started.limits.connections.get(),
        audit,
        clock,
        beat,
        tasks,
        draining,
    })
}

/// The audit of a process. `key` says what of the configuration names its file.
pub(super) fn audit(
    to: &AuditTo,
    key: &str,
    clock: &Arc<dyn Clock>,
    essentials: &mut Essentials,
) -> anyhow::Result<Audit> {
    let clock = Arc::clone(clock);
    let audit = match to {
        AuditTo::Nowhere => Audit::default(),
        AuditTo::Log => Audit::new(None, clock),
        AuditTo::File(path) => {
            let cannot = || format!("cannot open the audit file `{}` ({key})", path.display());
            let file = AuditFile::start(path, Arc::clone(&clock)).with_context(cannot)?;
            let writer = file.clone();
            essentials.push(("audit writer", async move { writer.ended().await }.boxed()));
            Audit::new(Some(Box::new(file)), clock)
        }
    };
    let counted = audit.clone();
    essentials.push(("counter of audit records", async move { counted.count_omitted().await }.boxed()));
    Ok(audit)
}

fn runner((launcher, scratch): (PathBuf, PathBuf), tasks: &TaskTracker, live: &LiveRuns) -> ProcessRunner {
    let (limits, tasks, live) = (RunLimits::default(), tasks.clone(), live.clone());
    ProcessRunner::new(RunnerParts { limits, launcher, scratch, tasks, live })
}

fn working(adopter: &Arc<Adopter>, clusters: Arc<Clusters<ProcessRunner>>, beat: Beat) -> Essentials {
    let (cache, resolver) = (adopter.cache.clone(), Arc::clone(&adopter.resolver));
    let hub = Arc::clone(adopter);
    vec![
        ("account follower", follow_accounts(cache.clone()).boxed()),
        ("credential refresher", async move { cache.keep_fresh(beat).await }.boxed()),
        ("plugin file watcher", async move { resolver.keep_looking(beat).await }.boxed()),
        ("hub reader", async move { hub.hub.run().await }.boxed()),
        ("readiness reporter", async move { clusters.run().await }.boxed()),
    ]
}

fn serving(sockets: &[OpenSocket], acceptor: &Arc<Acceptor<Gate<ProcessRunner>>>, beat: Beat) -> Essentials {
    if !acceptor.identifies_its_own() {
        warn!(
            "the broker does not serve its own user: the kernel uses the same uid for all users that it cannot map"
        );
    }
    let watched = Arc::clone(acceptor);
    let watchdog = async move { watched.watch_over(|period| beat.next(period)).await };
    let mut essentials = vec![("connection watchdog", watchdog.boxed())];
    let keepers: Option<Vec<_>> = sockets.iter().map(|socket| socket.keeper.clone()).collect();
    for socket in sockets {
        if let Some(keeper) = socket.keeper.clone() {
            let (newest, all) = (socket.newest.clone(), keepers.clone());
            // A broker that no client can reach ends. A socket without a name is systemd's.
            let is_over = move || all.as_ref().is_some_and(|all| all.iter().all(Keeper::is_lost));
            let kept = async move { keeper.run(&newest, |period| beat.next(period), is_over).await };
            essentials.push(("socket watcher", kept.boxed()));
        }
        let (acceptor, listener) = (Arc::clone(acceptor), socket.listener);
        let newest = socket.newest.subscribe();
        essentials.push(("accept loop", async move { acceptor.run(listener, newest).await }.boxed()));
    }
    essentials
}

#[cfg(test)]
mod tests {
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
