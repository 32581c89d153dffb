//! Connects all parts of a broker.

use std::{
    mem::take,
    path::PathBuf,
    sync::{Arc, Mutex},
};

use anyhow::{Context as _, anyhow};
use futures_util::FutureExt as _;
use tokio::sync::{Notify, watch};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::warn;

use super::{
    audit_file::AuditFile,
    bound::{Bound, Essentials},
    edges::Edges,
    limits,
    reload::{Adopter, Follower, note_shared},
    sockets::{Listening, OpenSocket, serve_metrics},
    systemd,
};
use credbroker_cache::{CacheParts, CredentialCache};
use credbroker_config::{AuditTo, Config};
use credbroker_fleet::{
    ApiVerifier, Fleet,
    hub::{HubParts, HubReader},
    resolver::Resolver,
};
use credbroker_observe::{audit::Audit, clock::Beat, metrics::Metrics};
use credbroker_plugin::access::Policy;
use credbroker_runner::{
    LiveRuns, ProcessRunner, RunLimits, RunnerParts, Scheduler, check_scratch, reap_orphans,
};
use credbroker_server::{Broker, Clusters, Gate, Monitor, ReloadState, encode, record_runs};
use credbroker_uds_server::Acceptor;

/// Builds the broker of `config`. Must be called within a tokio runtime.
///
/// # Errors
///
/// Nothing was started, and no file of another process was changed.
pub fn build(mut config: Config, listening: Vec<Listening>, edges: Edges) -> anyhow::Result<Bound> {
    let base = edges.scratch.display();
    check_scratch(&edges.scratch).map_err(|cause| {
        anyhow!(
            "cannot make working directories for plugins in {base}: {cause}; mount a writable volume there, such as an emptyDir in memory, or set TMPDIR to a directory that is writable"
        )
    })?;
    let (mut essentials, bounds) = (Essentials::new(), config.limits);
    let audit = audit(&config.audit, &edges, &mut essentials)?;
    let sockets = listening.into_iter().map(Listening::open).collect::<Result<Vec<_>, _>>()?;

    let (tasks, draining, jitter) = (TaskTracker::new(), CancellationToken::new(), edges.jitter);
    let (metrics, live_runs, clock) = (Arc::<Metrics>::default(), LiveRuns::default(), edges.clock);
    let scheduler = Scheduler::new(limits::runs(&bounds), Arc::clone(&clock), jitter);
    scheduler.set_interactive(bounds.interactive_runs.get());
    let cache = CredentialCache::new(CacheParts {
        runner: runner((edges.launcher, edges.scratch), &tasks, &live_runs),
        scheduler: scheduler.clone(),
        encode,
        verify: ApiVerifier::function(),
        on_run: record_runs(audit.clone()),
        metrics: Arc::clone(&metrics),
        clock: Arc::clone(&clock),
        jitter,
        epoch: edges.epoch,
        entries: limits::entries(&bounds),
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
    let path = paths.first().cloned();
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
    });
    if let Some(listen) = &adopter.started.metrics {
        let (broker, tasks, draining) = (Arc::clone(&broker), tasks.clone(), draining.clone());
        let monitor = Monitor::new(broker, listen.provider_names, tasks, draining);
        essentials.push(("metrics server", serve_metrics(&listen.address, monitor)?.boxed()));
    }
    let stopping = broker.stopping.clone();
    let (gate, bounds) = (Gate::new(broker, listeners, live_runs.clone()), limits::connections(&bounds));
    let acceptor = Arc::new(Acceptor::new(Arc::new(gate), bounds, tasks.clone(), draining.clone()));
    let beat = Beat::start();
    essentials.extend(working(&adopter, clusters, beat));
    essentials.extend(serving(&sockets, &acceptor, beat));
    let orphans = edges.reaps_orphans.then(|| ("reaper of orphans", reap_orphans(live_runs).boxed()));
    let log = edges.log.map(|log| ("log writer", async move { log.ended().await }.boxed()));
    essentials.extend(orphans.into_iter().chain(log));
    if let Some(manager) = edges.service_manager {
        let acceptor = Arc::clone(&acceptor);
        let reported = async move {
            let connect = || systemd::connect(path.as_deref(), &acceptor);
            systemd::report(connect, manager.watchdog, systemd::notify).await;
        };
        essentials.push(("systemd notifier", reported.boxed()));
    }
    if let Some((place, sources)) = edges.follow {
        let (requests, state) = (Arc::clone(&reload), configuration.clone());
        let follower = Follower::new(place, sources, adopter, clock, requests, state);
        essentials.push(("configuration follower", async move { follower.run().await }.boxed()));
    }
    Ok(Bound { sockets, acceptor, audit, configuration, reload, stopping, essentials, tasks, draining })
}

/// Where `to` says.
fn audit(to: &AuditTo, edges: &Edges, essentials: &mut Essentials) -> anyhow::Result<Audit> {
    let clock = Arc::clone(&edges.clock);
    let audit = match to {
        AuditTo::Nowhere => Audit::default(),
        AuditTo::Log => Audit::in_log(clock),
        AuditTo::File(path) => {
            let cannot = || format!("cannot open the audit file `{}` (`audit.file`)", path.display());
            let file = AuditFile::start(path, Arc::clone(&clock)).with_context(cannot)?;
            let writer = file.clone();
            essentials.push(("audit writer", async move { writer.ended().await }.boxed()));
            Audit::in_lines(file, clock)
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

/// What keeps credentials and clusters as they should be.
fn working(adopter: &Arc<Adopter>, clusters: Arc<Clusters<ProcessRunner>>, beat: Beat) -> Essentials {
    let (cache, resolver) = (adopter.cache.clone(), Arc::clone(&adopter.resolver));
    let hub = Arc::clone(adopter);
    vec![
        ("credential refresher", async move { cache.keep_fresh(beat).await }.boxed()),
        ("plugin file watcher", async move { resolver.keep_looking(beat).await }.boxed()),
        ("hub reader", async move { hub.hub.run().await }.boxed()),
        ("readiness reporter", async move { clusters.run().await }.boxed()),
    ]
}

/// What serves callers at `sockets`.
fn serving(sockets: &[OpenSocket], acceptor: &Arc<Acceptor<Gate<ProcessRunner>>>, beat: Beat) -> Essentials {
    if !acceptor.identifies_its_own() {
        warn!(
            "the broker's own user is not served: its uid is the one that the kernel uses for all users that it cannot map"
        );
    }
    let watched = Arc::clone(acceptor);
    let watchdog = async move { watched.watch_over(|period| beat.next(period)).await };
    let mut essentials = vec![("connection watchdog", watchdog.boxed())];
    for socket in sockets {
        if let Some(keeper) = socket.keeper.clone() {
            let newest = socket.newest.clone();
            let kept = async move { keeper.run(&newest, |period| beat.next(period)).await };
            essentials.push(("socket watcher", kept.boxed()));
        }
        let (acceptor, listener) = (Arc::clone(acceptor), socket.listener);
        let newest = socket.newest.subscribe();
        essentials.push(("accept loop", async move { acceptor.run(listener, newest).await }.boxed()));
    }
    essentials
}
