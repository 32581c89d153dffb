//! The oracle's model of one key.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, SystemTime},
};

use crate::verify::Verdict;

/// One reading of all clocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    pub(super) wall: SystemTime,
    pub(super) boot: Duration,
    /// Of tokio's clock, which stops in suspend.
    pub(super) awake: Duration,
}

/// A plugin run handed out a token with this end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Issuance {
    pub(super) expires: SystemTime,
    /// Time since boot at which it ends in any case.
    pub(super) until: Duration,
    /// Evictions of the key before the run started.
    pub(super) evictions: u64,
}

/// A token of one key, and all runs that brought it.
#[derive(Clone, Debug)]
pub(super) struct Token {
    pub(super) key: usize,
    /// As the plugin named it last.
    pub(super) named: SystemTime,
    pub(super) issuances: Vec<Issuance>,
    /// Its API server no longer accepts it.
    pub(super) revoked: bool,
}

/// What the cache must hold for a key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub(super) token: usize,
    pub(super) expires: SystemTime,
    pub(super) until: Duration,
    pub(super) lifetime: Duration,
    pub(super) landed: Reading,
    /// After its arrival, the earliest and the latest time at which it is due.
    pub(super) due_in: (Duration, Duration),
    /// Of the plugin's file.
    pub(super) version: u64,
}

impl Held {
    pub(super) fn is_valid_at(&self, now: Reading) -> bool {
        now.wall < self.expires && now.boot < self.until
    }

    pub(super) fn left(&self, now: Reading) -> Duration {
        let wall = self.expires.duration_since(now.wall).unwrap_or_default();
        wall.min(self.until.saturating_sub(now.boot))
    }

    /// Whether so much time has passed since its arrival, by either clock.
    pub(super) fn has_passed(&self, time: Duration, now: Reading) -> bool {
        now.wall >= self.landed.wall + time || now.boot >= self.landed.boot + time
    }
}

/// What is in the cache, as far as it can be known from outside.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Content {
    #[default]
    Nothing,
    /// Runs from before and after an eviction were on their way together.
    Unsure,
    Held(Held),
}

/// A caller that has not been answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    pub(super) since: Duration,
    pub(super) kind: Kind,
    /// Nothing was held when it came.
    pub(super) cold: bool,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    Get,
    Report,
    Watch,
}

/// An open watch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Watched {
    pub(super) since: Duration,
    /// What it returned last.
    pub(super) token: Option<usize>,
}

#[derive(Debug, Default)]
pub(super) struct Key {
    pub(super) plugin: usize,
    pub(super) issuer: usize,
    pub(super) content: Content,
    /// It expired once, so the cache may have forgotten it, even if a step of the clock makes it valid again.
    pub(super) lapsed: bool,
    pub(super) evictions: u64,
    pub(super) evicted: Duration,
    pub(super) waiting: BTreeMap<u64, Waiting>,
    /// Those of them that may wait for a run of before the last eviction.
    pub(super) detached: BTreeSet<u64>,
    pub(super) watches: BTreeMap<u64, Watched>,
    /// Prewarms that go on.
    pub(super) prewarms: usize,
    /// Since boot, and awake.
    pub(super) last_used: (Duration, Duration),
    /// When a watch or a waiter left, since boot and awake.
    pub(super) last_left: (Duration, Duration),
    /// Runs that go on: the evictions before each.
    pub(super) running: Vec<u64>,
    /// When the last of them ended whose outcome is kept, awake.
    pub(super) ended: Duration,
    pub(super) refresh_asked: bool,
    pub(super) last_token: Option<usize>,
    /// When any run failed, and the last kept one: since boot and awake.
    pub(super) failed: Option<(Duration, Duration)>,
    pub(super) back_off_since: Option<Duration>,
    /// A person at a terminal, or a run without back-off, may come earlier.
    pub(super) attempts: u32,
    pub(super) suspected: Suspected,
    /// The generation that a caller was given last.
    pub(super) given: Option<String>,
    /// For what happens in tasks: these may take turns in any order within a moment.
    pub(super) random: Random,
}

#[derive(Debug)]
pub(super) struct Random(pub(super) fastrand::Rng);

impl Default for Random {
    fn default() -> Self {
        Self(fastrand::Rng::with_seed(fastrand::u64(..)))
    }
}

/// The evidence for a run while a valid credential is held.
#[derive(Debug, Default)]
pub(super) struct Suspected {
    /// Awake: the last three times that a caller came back.
    repeats: [Option<Duration>; 3],
    /// The last verdict, and when it was asked for.
    verdict: Option<(Verdict, Duration)>,
    /// Awake: a run was worth it last.
    pub(super) reason: Option<Duration>,
    /// Since the last eviction: the first of all, and runs that only a rejection explains.
    pub(super) first: Option<Duration>,
    pub(super) runs: u32,
}

impl Suspected {
    pub(super) fn reported(&mut self, now: Reading) {
        self.first.get_or_insert(now.boot);
        self.reason = Some(now.awake);
    }

    /// A caller came back for what it has. `verifiable`: an API server can be asked.
    pub(super) fn repeated(&mut self, verifiable: bool, now: Reading) {
        self.first.get_or_insert(now.boot);
        self.repeats.rotate_left(1);
        self.repeats[2] = Some(now.awake);
        match self.verdict.filter(|(_, at)| now.boot.saturating_sub(*at) <= Duration::from_secs(6)) {
            _ if !verifiable => self.reason = Some(now.awake),
            Some((verdict, _)) => self.weighed(verdict, now),
            None => {} // the answer is yet to come
        }
    }

    pub(super) fn answered(&mut self, verdict: Verdict, now: Reading) {
        self.verdict = Some((verdict, now.boot));
        self.weighed(verdict, now);
    }

    fn weighed(&mut self, verdict: Verdict, now: Reading) {
        let doubted =
            self.repeats[0].is_some_and(|at| now.awake.saturating_sub(at) <= Duration::from_secs(35));
        if verdict != Verdict::Accepted || doubted {
            self.reason = Some(now.awake);
        }
    }
}

impl Key {
    pub(super) fn held(&self, now: Reading) -> Option<Held> {
        match self.content {
            Content::Held(held) if held.is_valid_at(now) && !self.lapsed => Some(held),
            _ => None,
        }
    }

    /// The cache forgets what is not used and holds nothing, its failures too.
    pub(super) fn may_be_forgotten(&mut self, now: Reading) {
        let idle = now.boot.saturating_sub(self.last_used.0) >= Duration::from_secs(299);
        if idle && self.waiting.is_empty() && self.watches.is_empty() && self.held(now).is_none() {
            (self.back_off_since, self.attempts) = (None, 0);
        }
    }

    /// Notes what has ended.
    pub(super) fn look(&mut self, now: Reading) {
        self.lapsed |= matches!(self.content, Content::Held(held) if !held.is_valid_at(now));
    }

    pub(super) fn is_running(&self) -> bool {
        self.running.contains(&self.evictions)
    }

    /// What is held is gone, and so is what runs bring that had started before.
    pub(super) fn evict(&mut self, now: Reading) {
        let valid = self.held(now).is_some();
        let waits = |waiting: &Waiting| waiting.kind != Kind::Watch || !valid;
        if !self.is_running() || !self.detached.is_empty() {
            self.detached
                .extend(self.waiting.iter().filter(|(_, waiting)| waits(waiting)).map(|(id, _)| *id));
        }
        self.evictions += 1;
        self.evicted = now.awake;
        self.content = Content::Nothing;
        (self.back_off_since, self.attempts, self.refresh_asked) = (None, 0, false);
        self.suspected = Suspected::default();
    }
}
