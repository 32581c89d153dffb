//! The requests of callers.

use std::{sync::Arc, time::Duration};

use tokio::time::{sleep, timeout};

use super::{driver::World, keys::RequestKind, plugins::secs};
use crate::{
    cache::{Caller, Lookup, Request},
    credential::Cluster,
};

impl World {
    pub(super) fn get(&self, key: usize, request: Request) {
        let world = self.clone();
        let patience = (fastrand::u8(..20) == 0).then(|| Duration::from_millis(fastrand::u64(1..5000)));
        self.tasks.spawn(async move {
            let name = request.caller.name;
            let limit = request.deadline.unwrap_or(secs(60));
            let spec = world.catalog.spec(key);
            let asked = {
                let verifiable = request.verify_at.is_some() || request.caller.without_exec_info;
                world.model.lock().unwrap().asks(key, RequestKind::Get, name, Some(limit), verifiable)
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

    pub(super) fn report(&self) {
        let (key, request) = (self.some_key(), request());
        let given = self.model.lock().unwrap().keys[key].given.clone();
        let Some(generation) = given else { return };
        let world = self.clone();
        self.tasks.spawn(async move {
            let limit = request.deadline.unwrap_or(secs(60));
            let asked = world.model.lock().unwrap().asks(
                key,
                RequestKind::Report,
                request.caller.name,
                Some(limit),
                false,
            );
            let answer = world.cache.report(world.catalog.spec(key), &generation, &request).await;
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
        // Watches of one key wake in any order.
        let caller = Caller { peer: 10 + key as u64 % 3, ..caller() };
        self.tasks.spawn(async move {
            let mut watch = world.cache.watch(world.catalog.spec(key), caller).unwrap();
            let id = world.model.lock().unwrap().watch_opened(key);
            loop {
                let asked = world.model.lock().unwrap().asks_as(
                    id,
                    key,
                    RequestKind::Watch,
                    caller.name,
                    None,
                    false,
                );
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
}

fn caller() -> Caller {
    Caller {
        name: fastrand::u64(0..6),
        peer: fastrand::u64(1..6),
        without_exec_info: fastrand::u8(..10) == 0,
        at_terminal: fastrand::u8(..10) == 0,
    }
}

pub(super) fn request() -> Request {
    let deadline = fastrand::bool().then(|| Duration::from_millis(fastrand::u64(200..40_000)));
    let cluster = Cluster { server: "https://paris".into(), ..Cluster::default() };
    let verify_at = (fastrand::u8(..3) > 0).then(|| Arc::new(cluster));
    Request { caller: caller(), deadline, verify_at, ..Request::default() }
}
