//! Lets things happen, as the seed says.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::time::{sleep, timeout};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    fleet::Catalog,
    keys::{Key, Kind},
    model::{Model, Shared, Story},
    plugins::{Mode, Plugins, secs},
};
use crate::{
    cache::{CacheParts, Caller, CredentialCache, Lookup, Request, Selector, Verify},
    clock::Clock,
    credential::Cluster,
    exec::Scheduler,
    plugin::ProfileName,
};

#[derive(Clone)]
struct World {
    cache: CredentialCache<Arc<Plugins>>,
    model: Shared,
    catalog: Arc<Catalog>,
    tasks: TaskTracker,
    draining: CancellationToken,
    watches: Arc<Mutex<Vec<CancellationToken>>>,
}

/// One life: its story.
pub(super) async fn live(large: bool, told: bool) -> Story {
    let world = World::new(large, told);
    let keeper = world.clone();
    world.tasks.spawn(async move { keeper.cache.keep_fresh().await });
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
    fn new(large: bool, told: bool) -> Self {
        let catalog = Arc::new(Catalog::new(if large { 1000 } else { fastrand::usize(4..30) }, large));
        let model = Arc::new(Mutex::new(Model::new(&catalog, told)));
        let (tasks, draining) = (TaskTracker::new(), CancellationToken::new());
        let clock = Arc::clone(&model.lock().unwrap().clock) as Arc<dyn Clock>;
        for issuer in 0..catalog.issuers.len() {
            model.lock().unwrap().change(issuer, Mode::Healthy);
        }
        let runs = catalog.issuers.iter().map(|issuer| issuer.concurrency.get()).sum::<usize>() + 1;
        let scheduler = Scheduler::new(runs, Arc::clone(&clock), fastrand::f64, tasks.clone());
        let asked = Arc::clone(&model);
        let verify: Verify = Arc::new(move |issued, _| {
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
            entries: 2000,
            ..parts
        });
        Self { cache, model, catalog, tasks, draining, watches: Arc::default() }
    }

    fn is_fine(&self) -> bool {
        self.model.lock().unwrap().story.broken.is_none()
    }

    /// Some keys are asked for more often than others.
    fn some_key(&self) -> usize {
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

    fn get(&self, key: usize, request: Request) {
        let world = self.clone();
        let patience = (fastrand::u8(..20) == 0).then(|| Duration::from_millis(fastrand::u64(1..5000)));
        self.tasks.spawn(async move {
            let name = request.caller.name;
            let limit = request.deadline.unwrap_or(secs(60));
            let spec = world.catalog.spec(key);
            let asked = {
                let verifiable = request.verify_at.is_some() || request.caller.without_exec_info;
                world.model.lock().unwrap().asks(key, Kind::Get, name, Some(limit), verifiable)
            };
            let answer = match world.cache.lookup(&spec.key, &request.caller) {
                Lookup::Served(issued) => Some(Ok(issued)),
                Lookup::Undecided => {
                    let get = world.cache.get(spec, &request);
                    timeout(patience.unwrap_or(Duration::MAX), get).await.ok()
                }
            };
            let mut model = world.model.lock().unwrap();
            match answer {
                Some(_) if world.draining.is_cancelled() => {}
                Some(answer) => {
                    model.judge(asked, &answer);
                    if let Ok(issued) = answer {
                        model.was_given(key, name, issued.generation.to_string());
                    }
                }
                None => model.leaves(asked),
            }
        });
    }

    fn report(&self) {
        let (key, request) = (self.some_key(), request());
        let given = self.model.lock().unwrap().keys[key].given.clone();
        let Some(generation) = given else { return };
        let world = self.clone();
        self.tasks.spawn(async move {
            let limit = request.deadline.unwrap_or(secs(60));
            let asked =
                world.model.lock().unwrap().asks(key, Kind::Report, request.caller.name, Some(limit), false);
            let answer = world.cache.report(world.catalog.spec(key), &generation, &request).await;
            if !world.draining.is_cancelled() {
                world.model.lock().unwrap().judge_report(asked, &generation, &answer);
            }
        });
    }

    fn open_watch(&self, key: usize) {
        if self.catalog.profile_of(key).is_some() {
            return; // the server lets such watches move on, not the cache
        }
        let (world, closing) = (self.clone(), self.draining.child_token());
        self.watches.lock().unwrap().push(closing.clone());
        // Watches of one key come back in any order.
        let caller = Caller { peer: 10 + key as u64 % 3, ..caller() };
        self.tasks.spawn(async move {
            let mut watch = world.cache.watch(world.catalog.spec(key), caller).unwrap();
            let id = world.model.lock().unwrap().watch_opened(key);
            loop {
                let asked =
                    world.model.lock().unwrap().asks_as(id, key, Kind::Watch, caller.name, None, false);
                let answer = tokio::select! {
                    biased;
                    () = closing.cancelled() => {
                        world.model.lock().unwrap().leaves(asked);
                        break;
                    }
                    answer = watch.next() => answer,
                };
                let failed = answer.is_err();
                {
                    let mut model = world.model.lock().unwrap();
                    let token = model.judge(asked, &answer);
                    let watched = model.keys[key].watches.get_mut(&id).unwrap();
                    watched.token = token.or(watched.token);
                }
                if failed {
                    tokio::select! {
                        biased;
                        () = closing.cancelled() => break,
                        () = sleep(secs(1)) => {}
                    }
                }
            }
            drop(watch);
            world.model.lock().unwrap().watch_closed(key, id);
        });
    }

    fn close_watch(&self) {
        let mut watches = self.watches.lock().unwrap();
        if !watches.is_empty() {
            let index = fastrand::usize(..watches.len());
            watches.swap_remove(index).cancel();
        }
    }

    fn prewarm(&self, key: usize) {
        let world = self.clone();
        {
            let mut model = self.model.lock().unwrap();
            let now = model.now();
            model.event(|| format!("prewarm of {key}"));
            model.keys[key].prewarms += 1;
            model.keys[key].last_used = (now.boot, now.awake);
        }
        self.tasks.spawn(async move {
            drop(world.cache.fetch_ahead(world.catalog.spec(key)).await);
            let mut model = world.model.lock().unwrap();
            let now = model.now();
            model.keys[key].prewarms -= 1;
            model.keys[key].last_left = (now.boot, now.awake);
        });
    }

    fn evict_all(&self) {
        self.evict(&Selector::All, |_, _| true);
    }

    fn evict_provider(&self, plugin: usize) {
        self.evict(&self.catalog.selector(plugin), |key, _| key.plugin == plugin);
    }

    /// By the key's text, or by its profile.
    fn evict_key(&self, key: usize) {
        let selector = match self.catalog.profile_of(key) {
            Some(profile) => Selector::ClusterProfile(profile),
            None => Selector::Key(self.catalog.spec(key).key.to_string().parse().unwrap()),
        };
        self.evict(&selector, |_, index| index == key);
    }

    fn evict(&self, selector: &Selector, is_selected: impl Fn(&Key, usize) -> bool) {
        let mut model = self.model.lock().unwrap();
        model.event(|| format!("evict {selector:?}"));
        model.evicted(is_selected);
        drop(model);
        self.cache.evict(selector);
    }

    fn forget(&self, key: usize) {
        let Some(profile): Option<ProfileName> = self.catalog.profile_of(key) else { return };
        let mut model = self.model.lock().unwrap();
        model.event(|| format!("profile of {key} is forgotten"));
        model.evicted(|_, index| index == key);
        drop(model);
        self.cache.forget(&profile, None);
    }

    fn refresh(&self, plugin: usize) {
        let world = self.clone();
        let mut model = self.model.lock().unwrap();
        model.event(|| format!("refresh {plugin}"));
        model.refresh_asked(plugin);
        drop(model);
        self.tasks.spawn(async move {
            world.cache.refresh(&world.catalog.selector(plugin)).await;
        });
    }

    fn upgrade(&self, plugin: usize) {
        let mut model = self.model.lock().unwrap();
        model.event(|| format!("upgrade of {plugin}"));
        let now = model.now();
        model.replaced[plugin] = now.awake;
        self.catalog.plugins[plugin].file.replace();
    }

    fn clocks_jump(&self) {
        let mut model = self.model.lock().unwrap();
        let time =
            Duration::from_secs(fastrand::choice([5, 60, 600, 4000]).unwrap() * fastrand::u64(1..10) / 5);
        let millis = i64::try_from(time.as_millis()).unwrap();
        match fastrand::u8(..4) {
            0 => model.step(millis),
            1 => model.step(-millis),
            _ => model.suspend(time),
        }
    }

    /// An API server does not accept the newest token of a key any more.
    fn revoke(&self) {
        let mut model = self.model.lock().unwrap();
        if let Some(token) = model.keys[self.some_key()].last_token {
            model.tokens[token].revoked = true;
            model.event(|| format!("token {token} is revoked"));
        }
    }

    fn issuer_changes(&self) {
        let mut model = self.model.lock().unwrap();
        let issuer = fastrand::usize(..self.catalog.issuers.len());
        let mode = match fastrand::u8(..20) {
            0 => Mode::Slow,
            1 | 2 => Mode::Failing,
            3 => Mode::Flaky,
            4 => Mode::Throttling(None),
            5 => Mode::Throttling(Some(fastrand::u64(1..120))),
            6 => Mode::Same,
            7 => Mode::Extending,
            8 => Mode::Expired(fastrand::choice([10, 200, 400]).unwrap()),
            _ if model.issuers[issuer].mode == Mode::Healthy => return,
            _ => Mode::Healthy,
        };
        model.change(issuer, mode);
    }

    /// Every issuer works again: after a time everything does.
    async fn ends_well(&self) {
        let quiet = {
            let mut model = self.model.lock().unwrap();
            for issuer in 0..self.catalog.issuers.len() {
                model.change(issuer, Mode::Healthy);
            }
            // The longest run, pause, slow start and back-off.
            secs(31 + 121 + 30 + 61 + 60)
        };
        sleep(quiet).await;
        for key in 0..self.catalog.keys {
            let asked = self.model.lock().unwrap().asks(key, Kind::Get, 0, Some(secs(60)), true);
            let answer = self.cache.get(self.catalog.spec(key), &Request::default()).await;
            let mut model = self.model.lock().unwrap();
            model.judge(asked, &answer);
            if let Err(failed) = answer {
                model.broken(|| format!("every issuer works, and key {key} has: {failed}"));
            }
        }
    }
}

fn caller() -> Caller {
    Caller {
        name: fastrand::u64(0..6),
        peer: fastrand::u64(1..6),
        without_exec_info: fastrand::u8(..10) == 0,
        at_terminal: fastrand::u8(..10) == 0,
    }
}

fn request() -> Request {
    let deadline = fastrand::bool().then(|| Duration::from_millis(fastrand::u64(200..40_000)));
    let cluster = Cluster { server: "https://paris".into(), ..Cluster::default() };
    let verify_at = (fastrand::u8(..3) > 0).then(|| Arc::new(cluster));
    Request { caller: caller(), deadline, verify_at }
}
