//! The parts of the hub with a runner that starts no process, and tokio's clock, so that time can be paused.

#![expect(clippy::disallowed_methods, reason = "tokio's clock is the tests' clock")]

mod reading;

use std::{
    backtrace::Backtrace,
    collections::HashMap,
    num::NonZeroUsize,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, SystemTime},
};

use kube::api::DynamicObject;
use serde_json::{Value, json};
use tokio::{
    sync::watch,
    time::{Instant, sleep},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{prewarm::Prewarmer, *};
use crate::{fleet::Fleet, resolver::Resolver};
use credbroker_cache::{CacheParts, CredentialCache};
use credbroker_config::Prewarm;
use credbroker_credential::{Decoded, Material, Token};
use credbroker_observe::clock::{Clock, Now};
use credbroker_plugin::{
    Command, Globs, PluginSpec, ProfileName, Providers, Target,
    cluster_profile::{ClusterProfile, EndpointRules},
    testing::provider as test_provider,
};
use credbroker_runner::{Attendance, RunError, RunErrorKind, RunOutput};

/// Prints `login-1`, then `login-2`, …; records the start of each run.
#[derive(Debug)]
pub(super) struct Runner {
    started: Instant,
    log: Mutex<Vec<(String, Duration)>>,
    running: Mutex<HashMap<Arc<str>, usize>>,
    most: AtomicUsize,
    takes: Duration,
    fails: bool,
    /// The same token in each run, with a later expiry.
    pub(super) same: AtomicBool,
}

impl PluginRunner for Runner {
    async fn run(&self, spec: Arc<PluginSpec>, _: Arc<Attendance>) -> Result<RunOutput, RunError> {
        let provider = Arc::clone(&spec.provider.name);
        let name = spec.target.as_ref().map_or(&provider, |target| &target.profile.name).to_string();
        let number = {
            let mut log = self.log.lock().unwrap();
            log.push((name, self.started.elapsed()));
            log.len()
        };
        let add = |by: isize| {
            let mut running = self.running.lock().unwrap();
            let count = running.entry(Arc::clone(&provider)).or_default();
            *count = count.saturating_add_signed(by);
            self.most.fetch_max(*count, Ordering::SeqCst);
        };
        add(1);
        sleep(self.takes).await;
        add(-1);
        if self.fails {
            return Err(RunError { stderr: "no".into(), ..RunError::new("fake", RunErrorKind::Exit(1)) });
        }
        let number = if self.same.load(Ordering::SeqCst) { 1 } else { number };
        let token = Token { secret: format!("login-{number}").into(), expires_at: None };
        let expires_at = SystemTime::now() + Duration::from_secs(100_000);
        let material = Material { token: Some(token), pair: None };
        let decoded = Decoded { material, expires_at: Some(expires_at), warnings: Vec::new() };
        Ok(RunOutput { decoded, file_version: spec.file.version() })
    }
}

impl Runner {
    /// The runs, in the order of their starts.
    pub(super) fn ran(&self) -> Vec<String> {
        self.log.lock().unwrap().iter().map(|(name, _)| name.clone()).collect()
    }

    /// When each run started.
    pub(super) fn times(&self) -> Vec<Duration> {
        self.log.lock().unwrap().iter().map(|(_, at)| *at).collect()
    }

    /// The number of runs of one provider at the same time.
    pub(super) fn most(&self) -> usize {
        self.most.load(Ordering::SeqCst)
    }
}

/// Tokio's clock, the seconds that it was set forward, and whether the next fetch ahead that reads it panics.
#[derive(Debug)]
pub(super) struct TokioClock(Instant, SystemTime, pub(super) AtomicU64, pub(super) AtomicBool);

impl Clock for TokioClock {
    fn now(&self) -> Now {
        let is_fetch = || Backtrace::force_capture().to_string().contains("src/hub/prewarm.rs");
        let breaks = self.3.load(Ordering::SeqCst) && is_fetch() && self.3.swap(false, Ordering::SeqCst);
        assert!(!breaks, "broken on purpose");
        let boot = self.0.elapsed() + Duration::from_secs(self.2.load(Ordering::SeqCst));
        Now { wall: self.1 + boot, boot }
    }
}

/// The parts of a broker that a hub needs.
pub(super) struct Setup {
    pub(super) runner: Arc<Runner>,
    pub(super) clock: Arc<TokioClock>,
    pub(super) cache: CredentialCache<Runner>,
    pub(super) fleet: Arc<Fleet>,
    pub(super) resolver: Arc<Resolver>,
    pub(super) tasks: TaskTracker,
    pub(super) draining: CancellationToken,
}

impl Setup {
    /// With providers `p` and `q`, whose runs last `takes`.
    pub(super) fn new(takes: Duration, fails: bool) -> Self {
        let runner = Arc::new(Runner {
            started: Instant::now(),
            log: Mutex::default(),
            running: Mutex::default(),
            most: AtomicUsize::default(),
            takes,
            fails,
            same: AtomicBool::default(),
        });
        let (tasks, draining) = (TaskTracker::new(), CancellationToken::new());
        let clock = Arc::new(TokioClock(
            Instant::now(),
            SystemTime::now(),
            AtomicU64::default(),
            AtomicBool::default(),
        ));
        let cache = CredentialCache::new(CacheParts::for_tests(
            Arc::clone(&runner),
            Arc::clone(&clock) as Arc<dyn Clock>,
            &tasks,
            &draining,
        ));
        let providers = ["p", "q"].map(|name| test_provider(name, Command::Path("/bin/sh".into())));
        let providers = Arc::new(Providers::new(providers));
        let fleet = Arc::new(Fleet::new(Arc::clone(&providers), EndpointRules::default()));
        let resolver = Arc::new(Resolver::new(providers, Some(Arc::clone(&fleet))));
        Self { runner, clock, cache, fleet, resolver, tasks, draining }
    }

    pub(super) fn prewarmer(&self, rules: Vec<Prewarm>) -> Prewarmer<Runner> {
        Prewarmer::new(rules, self.parts())
    }

    pub(super) fn parts(&self) -> Arc<HubParts<Runner>> {
        Arc::new(HubParts {
            fleet: Arc::clone(&self.fleet),
            resolver: Arc::clone(&self.resolver),
            cache: self.cache.clone(),
            jitter: || 0.0,
            tasks: self.tasks.clone(),
            draining: self.draining.clone(),
        })
    }

    pub(super) fn inventory(&self, rules: Vec<Prewarm>) -> Inventory<Runner> {
        Inventory::new(rules, self.parts())
    }

    /// Writes `fleet/NAME` with a server of that provider, and returns its target.
    pub(super) fn target(&self, name: &str, provider: &str) -> Arc<Target> {
        let (profile, status) = (ProfileName::new("fleet", name), status(provider, name));
        self.fleet.apply(ClusterProfile::read(profile.clone(), &Value::Null, &status));
        Arc::clone(self.fleet.get(&profile).unwrap().outcome.as_ref().unwrap())
    }
}

/// A rule with this concurrency and rate.
pub(super) fn rule(profiles: &str, concurrency: usize, runs_per_second: usize) -> Prewarm {
    let count = |count| NonZeroUsize::new(count).unwrap();
    let (concurrency, runs_per_second) = (count(concurrency), count(runs_per_second));
    Prewarm { profiles: Globs::new([profiles]), providers: Vec::new(), concurrency, runs_per_second }
}

pub(super) fn status(provider: &str, server: &str) -> Value {
    json!({"accessProviders": [{"name": provider, "cluster": {"server": format!("https://{server}")}}]})
}

/// A profile of provider `p` with that server.
pub(super) fn object(name: &str, server: &str) -> DynamicObject {
    let (namespace, name) = name.split_once('/').unwrap();
    let metadata = json!({"namespace": namespace, "name": name});
    serde_json::from_value(json!({"metadata": metadata, "status": status("p", server)})).unwrap()
}
