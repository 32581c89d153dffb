//! The model of the oracle, and how it is updated.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::{Duration, SystemTime},
};

use super::{
    super::FakeClock,
    fleet::{Catalog, ISSUERS, identity},
    keys::{Content, IssuedToken, KeyModel, Reading, RequestKind, WaitingRequest, Watched},
    peers::StartedRuns,
    plugins::{IssuerMode, IssuerModel},
    scene::Scene,
};
use crate::Caller;
use credbroker_observe::clock::Clock as _;

/// The longest time from a request to the run that it causes: it waits for a minute, and leaves a run that is abandoned after
/// another one.
const NEEDED: Duration = Duration::from_secs(130);

/// The result of a simulation.
pub(super) struct Story {
    /// The first rule that was broken.
    pub(super) broken: Option<String>,
    pub(super) events: Vec<String>,
}

/// The expected state.
pub(super) struct Model {
    pub(super) clock: Arc<FakeClock>,
    pub(super) catalog: Arc<Catalog>,
    pub(super) keys: Vec<KeyModel>,
    pub(super) issuers: Vec<IssuerModel>,
    pub(super) tokens: Vec<IssuedToken>,
    pub(super) scene: Scene,
    /// The runs at a time.
    pub(super) slots: usize,
    /// When the limits changed last: time awake.
    pub(super) limited: Duration,
    /// Providers that the configuration no longer has.
    pub(super) gone: Vec<bool>,
    pub(super) started: StartedRuns,
    /// Verifications in progress, and when each began: time awake.
    pub(super) verifications: BTreeMap<u64, Duration>,
    /// When something changed last: time awake.
    pub(super) changed: Duration,
    /// Keys with the callers that got a credential of them.
    answered: BTreeSet<(usize, u64)>,
    /// The last step or suspend (time awake), and the last step back (time since boot).
    pub(super) jumped: Duration,
    pub(super) stepped_back: Duration,
    /// When each plugin's file was replaced: time awake.
    pub(super) replaced: Vec<Duration>,
    recorded: bool,
    pub(super) story: Story,
    next: u64,
}

pub(super) type Shared = Arc<Mutex<Model>>;

/// A request without an answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) id: u64,
    pub(super) key: usize,
    pub(super) at: Reading,
    pub(super) evictions: u64,
    /// What it asked for.
    pub(super) identity: u64,
    pub(super) kind: RequestKind,
    /// The process whose user is at a terminal.
    pub(super) user: Option<u64>,
    /// The longest time that it may wait; `None`: no limit.
    pub(super) limit: Option<Duration>,
    /// How long the credential has to live.
    pub(super) min_lifetime: Duration,
}

impl Model {
    pub(super) fn new(catalog: &Arc<Catalog>, scene: Scene, slots: usize, recorded: bool) -> Self {
        let keys = (0..catalog.keys).map(|key| {
            let plugin = catalog.plugin_of(key);
            KeyModel { plugin, issuer: catalog.plugins[plugin].issuer, ..KeyModel::default() }
        });
        Self {
            clock: Arc::new(FakeClock::new()),
            keys: keys.collect(),
            issuers: (0..ISSUERS.len()).map(|_| IssuerModel::default()).collect(),
            catalog: Arc::clone(catalog),
            tokens: Vec::new(),
            scene,
            slots,
            limited: Duration::ZERO,
            gone: vec![false; catalog.plugins.len()],
            started: StartedRuns::default(),
            verifications: BTreeMap::new(),
            changed: Duration::ZERO,
            answered: BTreeSet::new(),
            jumped: Duration::ZERO,
            stepped_back: Duration::ZERO,
            replaced: vec![Duration::ZERO; catalog.plugins.len()],
            recorded,
            story: Story { broken: None, events: Vec::new() },
            next: 0,
        }
    }

    pub(super) fn now(&self) -> Reading {
        let now = self.clock.now();
        Reading { wall: now.wall, boot: now.boot, awake: self.clock.awake() }
    }

    /// Adds an event to the story, if the story is kept.
    pub(super) fn event(&mut self, event: impl FnOnce() -> String) {
        let now = self.now();
        self.changed = now.awake;
        if self.recorded {
            let event = format!("{:.3?} {:.3?} {}", now.awake, now.boot, event());
            self.story.events.push(event);
        }
    }

    /// Records the first rule that was broken.
    pub(super) fn broken(&mut self, what: impl FnOnce() -> String) {
        if self.story.broken.is_none() {
            let what = format!("after {:.3?}: {}", self.now().awake, what());
            self.event(|| what.clone());
            self.story.broken = Some(what);
        }
    }

    pub(super) fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Records a request of `caller` for `key`.
    pub(super) fn asks(
        &mut self,
        key: usize,
        kind: RequestKind,
        caller: &Caller,
        limit: Option<Duration>,
        verifiable: bool,
    ) -> Asked {
        let id = self.number();
        self.asks_as(id, key, kind, caller, limit, verifiable)
    }

    pub(super) fn asks_as(
        &mut self,
        id: u64,
        key: usize,
        kind: RequestKind,
        caller: &Caller,
        limit: Option<Duration>,
        verifiable: bool,
    ) -> Asked {
        let Caller { name, peer, .. } = *caller;
        let now = self.now();
        let repeats = kind == RequestKind::Get && self.answered.contains(&(key, name));
        let known = &mut self.keys[key];
        known.may_be_forgotten(now);
        let cold = match known.content {
            Content::Nothing => true,
            Content::Held(held) => !held.is_valid_at(now),
            Content::Unsure => false,
        };
        known.waiting.insert(id, WaitingRequest { since: now.awake, kind, cold, peer });
        if kind != RequestKind::Watch {
            known.last_used = (now.boot, now.awake);
        }
        match kind {
            RequestKind::Report => known.suspected.reported(now),
            RequestKind::Get if repeats => known.suspected.repeated(verifiable, now),
            RequestKind::Login => known.refresh_asked = true,
            RequestKind::Get | RequestKind::Watch => {}
        }
        let evictions = known.evictions;
        self.event(|| format!("#{id} {kind:?} of {key} by {name} of {peer:x}, within {limit:?}"));
        let identity = identity(&self.catalog.spec(key));
        let user = caller.at_terminal.then(|| caller.id());
        if caller.at_terminal {
            self.keys[key].user_asked = Some(now.boot);
        }
        Asked { id, key, at: now, evictions, identity, kind, user, limit, min_lifetime: Duration::ZERO }
    }

    /// The last request for `key` needs a credential for `min_lifetime`.
    pub(super) fn needs(&mut self, key: usize, min_lifetime: Duration) {
        let now = self.now();
        self.event(|| format!("it needs {min_lifetime:?}"));
        self.keys[key].needs.retain(|(at, _)| now.awake.saturating_sub(*at) <= NEEDED);
        self.keys[key].needs.push((now.awake, min_lifetime));
    }

    /// The caller of `asked` has left, or has its answer.
    pub(super) fn leaves(&mut self, asked: Asked) {
        let now = self.now();
        self.event(|| format!("#{} leaves", asked.id));
        let key = &mut self.keys[asked.key];
        if let Some(waiting) = key.waiting.remove(&asked.id) {
            key.left.retain(|(at, _)| *at == now.awake);
            key.left.push((now.awake, waiting.peer));
        }
        key.detached.remove(&asked.id);
        key.last_left = (now.boot, now.awake);
    }

    pub(super) fn was_given(&mut self, key: usize, caller: u64, generation: String) {
        if caller != 0 {
            self.answered.insert((key, caller));
        }
        self.keys[key].given = Some(generation);
    }

    pub(super) fn watch_opened(&mut self, key: usize) -> u64 {
        let (now, id) = (self.now(), self.number());
        let known = &mut self.keys[key];
        known.last_used = (now.boot, now.awake);
        known.watches.insert(id, Watched { since: now.awake, token: None, evictions: 0 });
        self.event(|| format!("watch {id} of {key} opens"));
        id
    }

    pub(super) fn watch_closed(&mut self, key: usize, id: u64) {
        let now = self.now();
        let known = &mut self.keys[key];
        known.watches.remove(&id);
        known.unwatched = Some(now.awake);
        known.last_left = (now.boot, now.awake);
        self.event(|| format!("watch {id} of {key} closes"));
    }

    pub(super) fn evicted(&mut self, keys: impl Fn(&KeyModel, usize) -> bool) {
        let now = self.now();
        for (index, key) in self.keys.iter_mut().enumerate() {
            if keys(key, index) {
                key.evict(now);
            }
        }
        // The bounds are looked at again: what was over them in use may be idle now.
        self.evicts_for(None);
    }

    pub(super) fn refresh_asked(&mut self, plugin: usize) {
        for key in self.keys.iter_mut().filter(|key| key.plugin == plugin) {
            key.refresh_asked = true;
            key.refreshes += 1;
        }
    }

    /// A refresh has ended: until then, it uses all of its keys.
    pub(super) fn refreshed(&mut self, plugin: usize) {
        let now = self.now();
        for key in self.keys.iter_mut().filter(|key| key.plugin == plugin) {
            key.refreshes -= 1;
            key.last_left = (now.boot, now.awake);
        }
    }

    pub(super) fn step(&mut self, millis: i64) {
        self.event(|| format!("the wall clock steps by {millis} ms"));
        self.look();
        self.clock.step(millis);
        self.jumped = self.now().awake;
        if millis < 0 {
            self.stepped_back = self.now().boot;
        }
    }

    pub(super) fn suspend(&mut self, time: Duration) {
        self.event(|| format!("the machine sleeps for {time:?}"));
        self.look();
        self.clock.suspend(time);
        self.jumped = self.now().awake;
        self.issuers.iter_mut().for_each(IssuerModel::forget_starts);
    }

    /// Notes what has expired.
    pub(super) fn look(&mut self) {
        let now = self.now();
        self.keys.iter_mut().for_each(|key| key.look(now));
    }

    pub(super) fn change(&mut self, issuer: usize, mode: IssuerMode) {
        let now = self.now();
        let is_crowded = self.scene.is_crowded;
        self.issuers[issuer].change(mode, is_crowded, now);
        self.event(|| format!("issuer {issuer} is {mode:?}"));
    }
}

/// The text of a token: `KEY/TOKEN`.
pub(super) fn text_of(key: usize, token: usize) -> String {
    format!("{key}/{token}")
}

pub(super) fn token_of(text: &str) -> Option<usize> {
    text.split_once('/')?.1.parse().ok()
}

pub(super) fn since(then: SystemTime, now: SystemTime) -> Duration {
    now.duration_since(then).unwrap_or_default()
}
