//! The requests of callers.

use std::{sync::Arc, time::Duration};

use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::{driver::World, keys::RequestKind, model::Asked, peers::PEERS, plugins::secs};
use crate::{CacheError, Caller, Failed, Request};
use credbroker_credential::Cluster;

impl World {
    /// Several processes ask for the same keys at a time. Nothing is held for them.
    pub(super) fn rush(&self) {
        let (first, count) = (fastrand::usize(..self.catalog.keys), fastrand::usize(3..16));
        for key in (first..first + count).map(|key| key % self.catalog.keys) {
            self.evict_key(key);
        }
        for _ in 0..fastrand::usize(2..5) {
            let peer = fastrand::choice(PEERS).unwrap();
            let from = Duration::from_millis(fastrand::u64(0..500));
            for key in (first..first + count).map(|key| key % self.catalog.keys) {
                let mut request = request();
                request.caller.peer = peer;
                if fastrand::bool() {
                    self.get(key, request, from + Duration::from_millis(fastrand::u64(0..20)));
                }
            }
        }
    }

    /// A request that comes after some time.
    pub(super) fn get(&self, key: usize, request: Request, after: Duration) {
        let world = self.clone();
        let one_in = if self.scene.is_crowded { 5 } else { 20 };
        let patience = (fastrand::u8(..one_in) == 0).then(|| Duration::from_millis(fastrand::u64(1..5000)));
        self.tasks.spawn(async move {
            if !after.is_zero() {
                sleep(after).await;
            }
            let name = request.caller.name;
            let spec = world.catalog.spec(key);
            let asked = world.asks(key, RequestKind::Get, &request);
            let answer =
                if let Some(issued) = world.cache.lookup(&spec.key, &request.caller, request.min_lifetime) {
                    Some(Ok(issued))
                } else {
                    let get = world.with_room(key, request.caller.peer, world.cache.get(spec, &request));
                    timeout(patience.unwrap_or(Duration::MAX), get).await.ok()
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

    pub(super) fn report(&self) {
        let (key, request) = (self.some_key(), Request { min_lifetime: Duration::ZERO, ..request() });
        let given = self.model.lock().unwrap().keys[key].given.clone();
        let Some(generation) = given else { return };
        let world = self.clone();
        self.tasks.spawn(async move {
            let asked = world.asks(key, RequestKind::Report, &request);
            let report = world.cache.report(world.catalog.spec(key), &generation, &request);
            let answer = world.with_room(key, request.caller.peer, report).await;
            if !world.draining.is_cancelled() {
                world.model.lock().unwrap().judge_report(asked, &generation, &answer);
            }
        });
    }

    pub(super) fn open_watch(&self, key: usize) {
        if self.catalog.profile_of(key).is_some() {
            return; // such watches move to another key in the server, not in the cache
        }
        let (world, closing) = (self.clone(), self.draining.child_token());
        self.watches.lock().unwrap().push(closing.clone());
        // Watches of one key wake in any order. The hub watches as the broker.
        let peer = if key.is_multiple_of(11) { Caller::BROKER } else { PEERS[key % PEERS.len()] };
        let caller = Caller { peer, at_terminal: false, ..caller() };
        self.tasks.spawn(async move {
            while !closing.is_cancelled() {
                world.watches(key, caller, &closing).await;
                // The provider was retired, or there is no room.
                closing.run_until_cancelled(sleep(secs(1))).await;
            }
        });
    }

    /// Watches `key` until its provider is retired, or what the watch returned last is evicted.
    async fn watches(&self, key: usize, caller: Caller, closing: &CancellationToken) {
        self.model.lock().unwrap().evicts_for(Some(key));
        let watch = || self.cache.watch(self.catalog.spec(key), caller);
        let opened = self.judge_room(key, caller.peer, watch);
        let Ok(mut watch) = opened else { return };
        let id = self.model.lock().unwrap().watch_opened(key);
        while watch.retirement().is_none() {
            let asked = self.model.lock().unwrap().asks_as(id, key, RequestKind::Watch, &caller, None, false);
            let answer = tokio::select! {
                biased;
                () = closing.cancelled() => {
                    self.model.lock().unwrap().leaves(asked);
                    break;
                }
                answer = watch.next() => answer,
            };
            let failed = answer.is_err();
            {
                let mut model = self.model.lock().unwrap();
                let last = model.keys[key].watches[&id];
                model.judge_eviction(asked, last, &answer);
                let token = model.judge(asked, &answer);
                let watched = model.keys[key].watches.get_mut(&id).unwrap();
                if token.is_some() {
                    (watched.token, watched.evictions) = (token, asked.evictions);
                }
            }
            if matches!(answer, Err(Failed { error: CacheError::Evicted, .. })) {
                break;
            }
            if failed && closing.run_until_cancelled(sleep(secs(1))).await.is_none() {
                break;
            }
        }
        drop(watch);
        self.model.lock().unwrap().watch_closed(key, id);
    }

    /// Records a request. It may need room.
    pub(super) fn asks(&self, key: usize, kind: RequestKind, request: &Request) -> Asked {
        let mut model = self.model.lock().unwrap();
        model.evicts_for(Some(key));
        let verifiable = request.verify_at.is_some() || request.caller.without_exec_info;
        let asked = model.asks(key, kind, &request.caller, request.deadline.or(Some(secs(60))), verifiable);
        let min_lifetime = request.min_lifetime;
        if !min_lifetime.is_zero() {
            model.needs(key, min_lifetime);
        }
        Asked { min_lifetime, ..asked }
    }

    pub(super) fn close_watch(&self) {
        let mut watches = self.watches.lock().unwrap();
        if !watches.is_empty() {
            let index = fastrand::usize(..watches.len());
            watches.swap_remove(index).cancel();
        }
    }

    pub(super) fn prewarm(&self, key: usize) {
        let world = self.clone();
        {
            let mut model = self.model.lock().unwrap();
            let now = model.now();
            model.event(|| format!("prewarm of {key}"));
            model.evicts_for(Some(key));
            model.keys[key].prewarms += 1;
            model.keys[key].last_used = (now.boot, now.awake);
        }
        self.tasks.spawn(async move {
            let fetch = world.cache.fetch_ahead(world.catalog.spec(key));
            drop(world.with_room(key, Caller::BROKER, fetch).await);
            let mut model = world.model.lock().unwrap();
            let now = model.now();
            model.keys[key].prewarms -= 1;
            model.keys[key].last_left = (now.boot, now.awake);
        });
    }
}

pub(super) fn caller() -> Caller {
    Caller {
        name: fastrand::u64(0..6),
        peer: fastrand::choice(PEERS).unwrap(),
        without_exec_info: fastrand::u8(..10) == 0,
        at_terminal: fastrand::u8(..10) == 0,
    }
}

pub(super) fn request() -> Request {
    let deadline = fastrand::bool().then(|| Duration::from_millis(fastrand::u64(200..40_000)));
    let cluster = Cluster { server: "https://paris".into(), ..Cluster::default() };
    let verify_at = (fastrand::u8(..3) > 0).then(|| Arc::new(cluster));
    // Some of them are longer than any plugin issues.
    let min_lifetime = match fastrand::u8(..6) {
        0 => secs(fastrand::choice([45, 100, 300, 900, 3600]).unwrap() * fastrand::u64(30..130) / 100),
        _ => Duration::ZERO,
    };
    Request { caller: caller(), deadline, min_lifetime, verify_at, ..Request::default() }
}
