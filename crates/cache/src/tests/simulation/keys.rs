//! The oracle's model of one key.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, SystemTime},
};

use crate::Verdict;

/// One reading of all clocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    pub(super) wall: SystemTime,
    pub(super) boot: Duration,
    /// Time of tokio's clock, which stops during a suspend.
    pub(super) awake: Duration,
}

/// A plugin run that returned a token with this expiry.
#[derive(Clone, Copy, Debug)]
pub(super) struct Issuance {
    pub(super) expires: SystemTime,
    /// Time since boot at which it expires, also if the wall clock is set back.
    pub(super) until: Duration,
    /// Evictions of the key before the run started.
    pub(super) evictions: u64,
}

/// A token of one key, and all runs that returned it.
#[derive(Clone, Debug)]
pub(super) struct IssuedToken {
    pub(super) key: usize,
    /// The definition and the target that the plugin ran for.
    pub(super) identity: u64,
    /// The expiry that the plugin returned last.
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
    /// The earliest and the latest time from its arrival to its refresh.
    pub(super) due_in: (Duration, Duration),
    /// The version of the plugin's file.
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

    /// Whether a run at `now` may bring a credential that lives for `min_lifetime`, and this one does not.
    pub(super) fn is_improvable(&self, min_lifetime: Duration, now: Reading) -> bool {
        let brought = self.left(self.landed);
        let third = if brought < min_lifetime { brought / 3 } else { Duration::ZERO };
        let pause = third.max(Duration::from_secs(10));
        self.left(now) < min_lifetime && now.boot >= self.landed.boot + pause
    }

    /// The earliest and the latest time from `now` to its refresh.
    pub(super) fn still_due_in(&self, now: Reading) -> (Duration, Duration) {
        let boot = now.boot.saturating_sub(self.landed.boot);
        let wall = now.wall.duration_since(self.landed.wall).unwrap_or_default();
        (self.due_in.0.saturating_sub(boot.max(wall)), self.due_in.1.saturating_sub(boot.min(wall)))
    }

    /// Whether `time` has passed since its arrival, by either clock.
    pub(super) fn has_passed(&self, time: Duration, now: Reading) -> bool {
        now.wall >= self.landed.wall + time || now.boot >= self.landed.boot + time
    }
}

/// The expected content of the cache for one key.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Content {
    #[default]
    Nothing,
    /// Runs from before and after an eviction overlapped: either may have ended last.
    Unsure,
    Held(Held),
}

/// A caller that has not been answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct WaitingRequest {
    pub(super) since: Duration,
    pub(super) kind: RequestKind,
    /// The cache held nothing when the request came.
    pub(super) cold: bool,
    /// The process that asks.
    pub(super) peer: u64,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum RequestKind {
    Get,
    Report,
    Watch,
    /// Answered by a run only.
    Login,
}

/// An open watch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Watched {
    pub(super) since: Duration,
    /// What it returned last.
    pub(super) token: Option<usize>,
    /// The evictions of the key before it asked for that.
    pub(super) evictions: u64,
}

#[derive(Debug, Default)]
pub(super) struct KeyModel {
    pub(super) plugin: usize,
    pub(super) issuer: usize,
    pub(super) content: Content,
    /// It expired once, so the cache may have forgotten it, even if a step of the clock makes it valid again.
    pub(super) lapsed: bool,
    pub(super) evictions: u64,
    pub(super) evicted: Duration,
    /// Evictions before the last one that removed also the callers that waited: its profile changed.
    pub(super) moved: u64,
    /// When its provider was retired: time awake; and the evictions before.
    pub(super) retired: Option<Duration>,
    pub(super) active: u64,
    /// Runs that succeed until the plugin needs a user again.
    pub(super) renewals: usize,
    pub(super) waiting: BTreeMap<u64, WaitingRequest>,
    /// The processes whose callers left last, and when: time awake.
    pub(super) left: Vec<(Duration, u64)>,
    /// Those of them that may wait for a run that started before the last eviction.
    pub(super) detached: BTreeSet<u64>,
    pub(super) watches: BTreeMap<u64, Watched>,
    /// When a watch closed last: time awake.
    pub(super) unwatched: Option<Duration>,
    /// Prewarms in progress.
    pub(super) prewarms: usize,
    /// Refreshes in progress.
    pub(super) refreshes: usize,
    /// Time since boot, and time awake.
    pub(super) last_used: (Duration, Duration),
    /// When a watch or a waiting caller left: time since boot, and time awake.
    pub(super) last_left: (Duration, Duration),
    /// Runs in progress: the number of evictions before each.
    pub(super) running: Vec<u64>,
    /// When the last run ended whose outcome is kept: time awake.
    pub(super) ended: Duration,
    pub(super) refresh_asked: bool,
    pub(super) last_token: Option<usize>,
    /// When the last run failed whose outcome is kept: time since boot, and time awake.
    pub(super) failed: Option<(Duration, Duration)>,
    pub(super) back_off_since: Option<Duration>,
    /// When a user at a terminal asked last: time since boot.
    pub(super) user_asked: Option<Duration>,
    /// When users at terminals last got the failure of a run: time awake.
    pub(super) notified: BTreeMap<u64, Duration>,
    /// The latest end of the pause that its last run led to: time since boot.
    pub(super) throttled_until: Duration,
    /// Failed runs since the last success. A run for a user at a terminal ignores the back-off.
    pub(super) attempts: u32,
    pub(super) suspected: Suspected,
    /// The last requests that needed a lifetime: when (time awake), and how long.
    pub(super) needs: Vec<(Duration, Duration)>,
    /// The generation that a caller got last.
    pub(super) given: Option<String>,
    /// Random numbers for tasks. Each key has its own, because tasks that wake at one moment run in any order.
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
    /// The last three repeated requests: time awake.
    repeats: [Option<Duration>; 3],
    /// The last verdict, and when it was requested.
    verdict: Option<(Verdict, Duration)>,
    /// The last time that the evidence justified a run: time awake.
    pub(super) reason: Option<Duration>,
    /// Since the last eviction: the first evidence, and the number of runs that only a rejection explains.
    pub(super) first: Option<Duration>,
    pub(super) runs: u32,
}

impl Suspected {
    pub(super) fn reported(&mut self, now: Reading) {
        self.first.get_or_insert(now.boot);
        self.reason = Some(now.awake);
    }

    /// A caller requested a credential that it already has. `verifiable`: an API server can check the credential.
    pub(super) fn repeated(&mut self, verifiable: bool, now: Reading) {
        self.first.get_or_insert(now.boot);
        self.repeats.rotate_left(1);
        self.repeats[2] = Some(now.awake);
        match self.verdict.filter(|(_, at)| now.boot.saturating_sub(*at) <= Duration::from_secs(6)) {
            _ if !verifiable => self.reason = Some(now.awake),
            Some((verdict, _)) => self.weighed(verdict, now),
            None => {} // the API server has not answered yet
        }
    }

    pub(super) fn answered(&mut self, verdict: Verdict, now: Reading) {
        self.verdict = Some((verdict, now.boot));
        self.weighed(verdict, now);
    }

    fn weighed(&mut self, verdict: Verdict, now: Reading) {
        let doubted =
            self.repeats[0].is_some_and(|at| now.awake.saturating_sub(at) <= Duration::from_secs(40));
        if verdict != Verdict::Accepted || doubted {
            self.reason = Some(now.awake);
        }
    }
}

impl KeyModel {
    pub(super) fn held(&self, now: Reading) -> Option<Held> {
        match self.content {
            Content::Held(held) if held.is_valid_at(now) && !self.lapsed => Some(held),
            _ => None,
        }
    }

    /// The cache forgets an unused key without a valid credential, with its failures.
    pub(super) fn may_be_forgotten(&mut self, now: Reading) {
        let idle = now.boot.saturating_sub(self.last_used.0) >= Duration::from_secs(299);
        if idle && self.waiting.is_empty() && self.watches.is_empty() && self.held(now).is_none() {
            (self.back_off_since, self.attempts) = (None, 0);
        }
    }

    /// Whether a recent request needs a longer lifetime than that of `held`, and the plugin may be asked for it.
    pub(super) fn is_short(&self, held: Held, now: Reading) -> bool {
        self.needs.iter().any(|(_, min_lifetime)| held.is_improvable(*min_lifetime, now))
    }

    /// Notes what has expired.
    pub(super) fn look(&mut self, now: Reading) {
        self.lapsed |= matches!(self.content, Content::Held(held) if !held.is_valid_at(now));
    }

    pub(super) fn is_running(&self) -> bool {
        self.running.contains(&self.evictions)
    }

    /// Evicts the credential. The outcomes of runs that started before are not kept.
    pub(super) fn evict(&mut self, now: Reading) {
        let valid = self.held(now).is_some();
        // Callers that wait for a run in progress get its outcome. One that held a credential may wait for a verification.
        let joined = self.is_running() && self.detached.is_empty();
        let waits = |waiting: &WaitingRequest| {
            (waiting.kind != RequestKind::Watch || !valid) && !(joined && waiting.cold)
        };
        self.detached.extend(self.waiting.iter().filter(|(_, waiting)| waits(waiting)).map(|(id, _)| *id));
        self.evictions += 1;
        self.evicted = now.awake;
        self.content = Content::Nothing;
        (self.back_off_since, self.attempts, self.refresh_asked) = (None, 0, false);
        self.suspected = Suspected::default();
    }
}
