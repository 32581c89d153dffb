//! Connects all parts of a broker.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex},
};

use tokio::sync::watch;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic_health::server::HealthReporter;
use tracing::warn;

use super::{
    audit_file::AuditFile,
    bound::{Bound, Essentials},
    edges::Edges,
    limits,
    reload::{Adopter, ReloadRequest, Started, note_shared},
    sockets::{BuildError, Listening, OpenMonitor},
};
use credbroker_cache::{CacheParts, CredentialCache};
use credbroker_config::{AuditTo, Config};
use credbroker_fleet::{
    ApiVerifier, Fleet,
    hub::{HubParts, HubReader},
    resolver::Resolver,
};
use credbroker_observe::{audit::Audit, metrics::Metrics};
use credbroker_plugin::access::Policy;
use credbroker_runner::{LiveRuns, ProcessRunner, RunLimits, RunnerParts, check_scratch};
use credbroker_server::{
    Admission, BrokerInfo, Clusters, Gate, HealthChecks, MonitorParts, ProviderNames, ReloadState, encode,
    record_runs, services,
};
use credbroker_uds_server::Acceptor;

/// Builds the broker of `config`. Must be called within a tokio runtime.
///
/// # Errors
///
/// [`BuildError`]: nothing was started, and no file of another process was changed.
pub fn build(config: Config, listening: Vec<Listening>, edges: Edges) -> Result<Bound, BuildError> {
    check_scratch(&edges.scratch)
        .map_err(|cause| BuildError::Scratch { base: edges.scratch.clone(), cause })?;
    let (audit, audit_file) = audit(&config.audit, &edges)?;
    let sockets = listening.into_iter().map(Listening::open).collect::<Result<Vec<_>, _>>()?;

    let (tasks, draining, jitter) = (TaskTracker::new(), CancellationToken::new(), edges.jitter);
    let (metrics, live_runs) = (Arc::<Metrics>::default(), LiveRuns::default());
    let scheduler = limits::scheduler(&config.limits, Arc::clone(&edges.clock), jitter);
    let cache = CredentialCache::new(CacheParts {
        runner: runner((edges.launcher, edges.scratch), &tasks, &live_runs),
        scheduler: scheduler.clone(),
        encode,
        verify: ApiVerifier::function(),
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
    note_shared(&providers, &policies.borrow());
    let section = config.cluster_profiles;
    let rules = section.as_ref().map(|section| section.rules).unwrap_or_default();
    let fleet = Arc::new(Fleet::new(Arc::clone(&providers), rules));
    let read_fleet = section.is_some().then(|| Arc::clone(&fleet));
    let resolver = Arc::new(Resolver::new(Arc::clone(&providers), read_fleet));
    let clusters =
        Clusters::new(Arc::clone(&fleet), Arc::clone(&resolver), cache.clone(), Arc::clone(&edges.clock));
    let clusters = Arc::new(clusters);
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
        hub,
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
    let info = BrokerInfo { started: now, configuration: configuration.subscribe(), sockets: paths };
    let services =
        services(cache, resolver, Arc::clone(&clusters), health.clone(), info, (metrics, audit.clone()));
    let admission = Admission { policies: policies.subscribe(), listeners, runs: live_runs.clone() };
    let (gate, bounds) = (Arc::new(Gate::new(services, admission)), limits::connections(&config.limits));
    let acceptor = Arc::new(Acceptor::new(gate, bounds, tasks.clone(), draining.clone()));
    warn_of_unknown_user(&acceptor);
    Ok(Bound {
        sockets,
        acceptor,
        audit,
        audit_file,
        log: edges.log,
        clusters,
        adopter,
        clock: edges.clock,
        configuration,
        reload: ReloadRequest::default(),
        follow: None,
        monitor,
        service_manager: edges.service_manager,
        health,
        essentials: Essentials::new(tasks.clone(), draining.clone()),
        orphans: edges.reaps_orphans.then_some(live_runs),
        tasks,
        draining,
    })
}

fn runner((launcher, scratch): (PathBuf, PathBuf), tasks: &TaskTracker, live: &LiveRuns) -> ProcessRunner {
    let (limits, tasks, live) = (RunLimits::default(), tasks.clone(), live.clone());
    ProcessRunner::new(RunnerParts { limits, launcher, scratch, tasks, live })
}

fn warn_of_unknown_user(acceptor: &Acceptor<Gate<ProcessRunner>>) {
    if !acceptor.identifies_its_own() {
        warn!(
            "the broker's own user is not served: its uid is the one that the kernel uses for all users that it cannot map"
        );
    }
}

/// Where `to` says, and the file that it is, if it is one.
fn audit(to: &AuditTo, edges: &Edges) -> Result<(Audit, Option<AuditFile>), BuildError> {
    let clock = Arc::clone(&edges.clock);
    match to {
        AuditTo::Nowhere => Ok((Audit::default(), None)),
        AuditTo::Log => Ok((Audit::in_log(clock), None)),
        AuditTo::File(path) => {
            let file = AuditFile::start(path, Arc::clone(&clock));
            let file = file.map_err(|source| BuildError::Audit { path: path.clone(), source })?;
            Ok((Audit::in_lines(file.clone(), clock), Some(file)))
        }
    }
}
