//! Chooses what happens next, by the seed.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::time::{sleep, timeout};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    fleet::Catalog,
    keys::RequestKind,
    model::{Model, Shared, Story},
    plugins::{IssuerMode, Plugins, secs},
    requests::request,
};
use crate::{
    cache::{CacheParts, CredentialCache, EntryLimits, Request, VerifyFn},
    clock::Clock,
    exec::Scheduler,
};

#[derive(Clone)]
pub(super) struct World {
    pub(super) cache: CredentialCache<Arc<Plugins>>,
    pub(super) model: Shared,
    pub(super) catalog: Arc<Catalog>,
    pub(super) tasks: TaskTracker,
    pub(super) draining: CancellationToken,
    pub(super) watches: Arc<Mutex<Vec<CancellationToken>>>,
}

/// Simulates one broker from its start to its end, and returns what happened.
pub(super) async fn live(large: bool, recorded: bool) -> Story {
    let world = World::new(large, recorded);
    let keeper = world.clone();
    world.tasks.spawn(async move { keeper.cache.keep_fresh(crate::clock::Beat::start()).await });
    let watcher = world.clone();
    world.tasks.spawn(async move {
        while !watcher.draining.is_cancelled() {
            sleep(secs(1)).await;
            watcher.model.lock().unwrap().judge_promises();
        }
    });
    let (end, pause) = if large { (secs(60), 80) } else { (secs(400), 1200) };
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
    fn new(large: bool, recorded: bool) -> Self {
        let catalog = Arc::new(Catalog::new(if large { 1000 } else { fastrand::usize(4..30) }, large));
        let model = Arc::new(Mutex::new(Model::new(&catalog, recorded)));
        let (tasks, draining) = (TaskTracker::new(), CancellationToken::new());
        let clock = Arc::clone(&model.lock().unwrap().clock) as Arc<dyn Clock>;
        for issuer in 0..catalog.issuers.len() {
            model.lock().unwrap().change(issuer, IssuerMode::Healthy);
        }
        let runs = catalog.issuers.iter().map(|issuer| issuer.concurrency.get()).sum::<usize>() + 1;
        let scheduler = Scheduler::new(runs, Arc::clone(&clock), fastrand::f64);
        let asked = Arc::clone(&model);
        let verify: VerifyFn = Arc::new(move |issued, _| {
            let model = Arc::clone(&asked);
            Box::pin(async move {
                sleep(secs(1)).await;
                model.lock().unwrap().verdict(issued.token().unwrap_or_default())
            })
        });
        let runner = Arc::new(Plugins(Arc::clone(&model)));
        let parts = CacheParts::for_tests(runner, clock, &tasks, &draining);
        let cache = CredentialCache::new(CacheParts {
            scheduler,
            verify,
            jitter: fastrand::f64,
            entries: EntryLimits::for_tests(2000),
            ..parts
        });
        Self { cache, model, catalog, tasks, draining, watches: Arc::default() }
    }

    fn is_fine(&self) -> bool {
        self.model.lock().unwrap().story.broken.is_none()
    }

    /// Some keys get more requests than others.
    pub(super) fn some_key(&self) -> usize {
        let hot = fastrand::u8(..4) > 0;
        fastrand::usize(..if hot { self.catalog.keys.div_ceil(4) } else { self.catalog.keys })
    }

    fn something_happens(&self) {
        match fastrand::u32(..1000) {
            0..620 => self.get(self.some_key(), request()),
            620..660 => self.report(),
            660..740 => self.open_watch(self.some_key()),
            740..790 => self.close_watch(),
            790..820 => self.prewarm(self.some_key()),
            820..823 => self.evict_all(),
            823..830 => self.evict_provider(fastrand::usize(..self.catalog.plugins.len())),
            830..840 => self.evict_key(self.some_key()),
            840..850 => self.forget(self.some_key()),
            850..862 => self.refresh(fastrand::usize(..self.catalog.plugins.len())),
            862..874 => self.upgrade(fastrand::usize(..self.catalog.plugins.len())),
            874..890 => self.clocks_jump(),
            890..960 => self.revoke(),
            _ => self.issuer_changes(),
        }
    }

    /// Every issuer works again. After some time, every key must have a credential.
    async fn ends_well(&self) {
        let quiet = {
            let mut model = self.model.lock().unwrap();
            for issuer in 0..self.catalog.issuers.len() {
                model.change(issuer, IssuerMode::Healthy);
            }
            // The longest run, pause, slow start and back-off together.
            secs(31 + 121 + 30 + 61 + 60)
        };
        sleep(quiet).await;
        for key in 0..self.catalog.keys {
            let asked = self.model.lock().unwrap().asks(key, RequestKind::Get, 0, Some(secs(60)), true);
            let answer = self.cache.get(self.catalog.spec(key), &Request::default()).await;
            let mut model = self.model.lock().unwrap();
            model.judge(asked, &answer);
            if let Err(failed) = answer {
                model.broken(|| format!("every issuer works, and key {key} has: {failed}"));
            }
        }
    }
}
