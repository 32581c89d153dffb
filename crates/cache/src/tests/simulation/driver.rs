//! Chooses what happens next, by the seed.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::{
    sync::Semaphore,
    time::{sleep, timeout},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    fleet::{Catalog, ISSUERS},
    model::{Model, Shared, Story},
    plugins::{IssuerMode, Plugins, secs},
    requests::request,
    room::entry_limits,
    scene::Scene,
    verifications::{PLACES, verifier},
};
use crate::{CacheParts, CredentialCache, EntryLimits};
use credbroker_observe::clock::Clock;
use credbroker_runner::Scheduler;

/// Runs that may wait for a user at a time.
pub(super) const INTERACTIVE: usize = 2;

#[derive(Clone)]
pub(super) struct World {
    pub(super) cache: CredentialCache<Plugins>,
    pub(super) model: Shared,
    pub(super) catalog: Arc<Catalog>,
    pub(super) tasks: TaskTracker,
    pub(super) draining: CancellationToken,
    pub(super) watches: Arc<Mutex<Vec<CancellationToken>>>,
    pub(super) scheduler: Scheduler,
    /// Places for verifications.
    pub(super) places: Arc<Semaphore>,
    pub(super) scene: Scene,
    /// The bounds of the cache.
    pub(super) limits: Arc<Mutex<EntryLimits>>,
}

/// Simulates one broker from its start to its end, and returns what happened.
pub(super) async fn live(scene: Scene, recorded: bool) -> Story {
    let world = World::new(scene, recorded);
    let keeper = world.clone();
    world.tasks.spawn(async move { keeper.cache.keep_fresh(credbroker_observe::clock::Beat::start()).await });
    let watcher = world.clone();
    world.tasks.spawn(async move {
        while !watcher.draining.is_cancelled() {
            for _ in 0..4 {
                sleep(Duration::from_millis(250)).await;
                watcher.model.lock().unwrap().judge_queue();
            }
            watcher.model.lock().unwrap().judge_promises();
        }
    });
    let (end, pause) = if scene.is_large { (secs(60), 80) } else { (secs(400), 1200) };
    while world.is_fine() && world.model.lock().unwrap().now().awake < end {
        world.something_happens();
        sleep(Duration::from_millis(fastrand::u64(0..pause))).await;
    }
    if world.is_fine() {
        world.ends_well().await;
    }
    world.draining.cancel();
    world.tasks.close();
    if timeout(secs(60), world.tasks.wait()).await.is_err() {
        world.model.lock().unwrap().broken(|| "a drain does not end".into());
    }
    let mut model = world.model.lock().unwrap();
    let (broken, events) = (model.story.broken.take(), std::mem::take(&mut model.story.events));
    Story { broken, events }
}

impl World {
    fn new(scene: Scene, recorded: bool) -> Self {
        let catalog = Arc::new(Catalog::new(scene));
        let slots =
            scene.slots((0..ISSUERS.len()).map(|issuer| catalog.issuer(issuer).concurrency.get()).sum());
        let model = Arc::new(Mutex::new(Model::new(&catalog, scene, slots, recorded)));
        let (tasks, draining) = (TaskTracker::new(), CancellationToken::new());
        let clock = Arc::clone(&model.lock().unwrap().clock) as Arc<dyn Clock>;
        for issuer in 0..ISSUERS.len() {
            model.lock().unwrap().change(issuer, IssuerMode::Healthy);
        }
        let scheduler = Scheduler::new(slots, Arc::clone(&clock), fastrand::f64);
        scheduler.set_interactive(INTERACTIVE);
        let places = Arc::new(Semaphore::new(PLACES));
        let runner = Arc::new(Plugins(Arc::clone(&model)));
        let parts = CacheParts::for_tests(runner, clock, &tasks, &draining);
        let cache = CredentialCache::new(CacheParts {
            scheduler: scheduler.clone(),
            verify: verifier(&model, &places),
            jitter: fastrand::f64,
            entries: entry_limits(scene.capacity),
            ..parts
        });
        let watches = Arc::default();
        let limits = Arc::new(Mutex::new(entry_limits(scene.capacity)));
        Self { cache, model, catalog, tasks, draining, watches, scheduler, places, scene, limits }
    }

    pub(super) fn is_fine(&self) -> bool {
        self.model.lock().unwrap().story.broken.is_none()
    }

    /// Some keys get more requests than others.
    pub(super) fn some_key(&self) -> usize {
        let hot = fastrand::u8(..4) > 0;
        fastrand::usize(..if hot { self.catalog.keys.div_ceil(4) } else { self.catalog.keys })
    }

    fn something_happens(&self) {
        match fastrand::u32(..1000) {
            0..30 if self.scene.is_crowded => self.rush(),
            30..60 if !self.scene.is_large => self.person_asks(),
            0..620 => self.get(self.some_key(), request(), Duration::ZERO),
            620..660 => self.report(),
            660..740 => self.open_watch(self.some_key()),
            740..790 => self.close_watch(),
            790..820 => self.prewarm(self.some_key()),
            820..823 => self.evict_all(),
            823..830 => self.evict_provider(fastrand::usize(..self.catalog.plugins.len())),
            830..840 => self.evict_key(self.some_key()),
            840..850 => self.profile_changes(self.some_key()),
            850..862 => self.refresh(fastrand::usize(..self.catalog.plugins.len())),
            862..874 => self.upgrade(fastrand::usize(..self.catalog.plugins.len())),
            874..890 => self.clocks_jump(),
            890..896 => self.reload(),
            896..960 => self.revoke(),
            _ => self.issuer_changes(),
        }
    }
}
