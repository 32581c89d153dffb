//! Checks every answer.

use std::{sync::Arc, time::Duration};

use super::{
    keys::{Reading, RequestKind, Watched},
    model::{Asked, Model, token_of},
};
use crate::{CacheError, Failed, ReportOutcome, Reported};
use credbroker_credential::Issued;
use credbroker_observe::clock::Clock as _;
use credbroker_runner::{RunError, RunErrorKind};

/// Timers of tokio round up to a millisecond.
const TICK: Duration = Duration::from_millis(2);
/// The longest pause between two runs for rejections.
const LONGEST_PAUSE: Duration = Duration::from_secs(301);
/// The longest back-off of a key.
const BACK_OFF: Duration = Duration::from_secs(61);
/// The longest time that a failure is held.
const HELD: Duration = Duration::from_secs(31);

impl Model {
    /// Checks the answer to `asked`. Returns the token of the answer, if it has one.
    pub(super) fn judge(&mut self, asked: Asked, answer: &Result<Arc<Issued>, Failed>) -> Option<usize> {
        let now = self.now();
        let (id, key) = (asked.id, asked.key);
        let waited = now.awake.saturating_sub(asked.at.awake);
        if asked.limit.is_some_and(|limit| waited > limit + TICK) {
            self.broken(|| format!("#{id}, for key {key}, was answered after {waited:?}"));
        }
        let token = match answer {
            Ok(issued) => self.judge_credential(asked, issued, now),
            Err(failed) => {
                self.event(|| format!("#{id} gets: {failed}"));
                self.judge_error(asked, failed, waited, now);
                None
            }
        };
        self.leaves(asked);
        token
    }

    /// Checks the answer to `asked`, a report of `generation`.
    pub(super) fn judge_report(&mut self, asked: Asked, generation: &str, answer: &Result<Reported, Failed>) {
        if let Ok(Reported { issued, outcome }) = answer {
            let is_same = issued.generation.to_string() == generation;
            let is_true = match outcome {
                ReportOutcome::Replaced | ReportOutcome::AlreadyReplaced => !is_same,
                ReportOutcome::TooEarly { retry_after } => {
                    is_same && *retry_after > Duration::ZERO && *retry_after < LONGEST_PAUSE
                }
                ReportOutcome::NothingNewer => is_same,
                ReportOutcome::UnknownGeneration => true,
            };
            if !is_true {
                self.broken(|| {
                    format!("the report of {generation} led to {outcome:?} and {}", issued.generation)
                });
            }
        }
        self.judge(
            asked,
            &answer.as_ref().map(|reported| Arc::clone(&reported.issued)).map_err(Clone::clone),
        );
    }

    /// Checks that a watch ends if what it returned last was evicted, and only then.
    pub(super) fn judge_eviction(
        &mut self,
        asked: Asked,
        watched: Watched,
        answer: &Result<Arc<Issued>, Failed>,
    ) {
        let (now, id, key, last) = (self.now(), asked.id, asked.key, watched.token);
        let evictions = self.keys[key].evictions;
        let of_last = || last.iter().flat_map(|token| &self.tokens[*token].issuances);
        let ends = matches!(answer, Err(Failed { error: CacheError::Evicted, .. }));
        if ends && (last.is_none() || watched.evictions == evictions) {
            self.broken(|| format!("#{id}, a watch of key {key}, ends, and {last:?} was not evicted"));
            return;
        }
        let is_evicted = last.is_some() && of_last().all(|run| run.evictions < evictions);
        let is_valid = of_last().all(|run| now.wall < run.expires && now.boot < run.until);
        // A step of the clock may have made it valid again.
        if answer.is_ok() && is_evicted && is_valid && self.jumped < asked.at.awake {
            self.broken(|| format!("#{id}, a watch of key {key}, goes on, and {last:?} was evicted"));
        }
    }

    fn judge_credential(&mut self, asked: Asked, issued: &Issued, now: Reading) -> Option<usize> {
        let (id, key) = (asked.id, asked.key);
        let text = issued.token().unwrap_or_default();
        self.event(|| format!("#{id} gets {text}, {}", issued.generation));
        let Some(number) = token_of(text).filter(|number| *number < self.tokens.len()) else {
            self.broken(|| format!("#{id} got `{text}`, which no plugin printed"));
            return None;
        };
        let token = self.tokens[number].clone();
        if token.key != key {
            self.broken(|| format!("#{id}, for key {key}, got {text}: of another key"));
        }
        if token.identity != asked.identity {
            self.broken(|| format!("#{id}, for key {key}, got {text}: of another definition or target"));
        }
        if token.issuances.iter().all(|issued| issued.evictions < asked.evictions) {
            self.broken(|| format!("#{id}, for key {key}, got {text}: evicted before it asked"));
        }
        let known = &self.keys[key];
        let is_retired = known.retired.is_some_and(|retired| retired < now.awake);
        if is_retired && token.issuances.iter().all(|issued| issued.evictions < known.active) {
            self.broken(|| format!("#{id}, for key {key}, got {text}: its provider was retired"));
        }
        let ends = token.issuances.iter().filter(|run| run.expires == issued.expires_at);
        if !ends.clone().any(|run| now.wall < run.expires && now.boot < run.until) {
            let ends = ends.map(|run| run.until).max();
            self.broken(|| {
                format!(
                    "#{id}, for key {key}, got {text}: expired; it ended at {ends:?} since boot, now is {:?}",
                    now.boot
                )
            });
        }
        if asked.kind == RequestKind::Get && issued.is_shorter_than(asked.min_lifetime, self.clock.now()) {
            self.judge_short(asked, number, now);
        }
        Some(number)
    }

    /// Checks that the plugin could not be asked for a credential that lives longer than `token`.
    fn judge_short(&mut self, asked: Asked, token: usize, now: Reading) {
        let key = &self.keys[asked.key];
        let held = key.held(now).filter(|held| held.token == token && held.landed.awake < now.awake);
        let is_improvable = held.is_some_and(|held| held.is_improvable(asked.min_lifetime, now));
        let waited = now.awake.saturating_sub(asked.at.awake);
        let is_late = asked.limit.is_some_and(|limit| waited + TICK >= limit);
        let failed = key.failed.is_some_and(|(at, _)| now.boot.saturating_sub(at) <= BACK_OFF);
        let is_paused = now.boot <= self.issuers[key.issuer].paused_at_most.max(key.throttled_until);
        let is_disturbed = key.evictions != asked.evictions
            || !key.detached.is_empty()
            || self.jumped >= asked.at.awake
            || self.gone[key.plugin]
            || self.catalog.plugins[key.plugin].asks_persons();
        if is_improvable && !is_late && !failed && !is_paused && !is_disturbed {
            let (id, index, needed) = (asked.id, asked.key, asked.min_lifetime);
            let left = held.map(|held| held.left(now));
            self.broken(|| {
                format!("#{id}, for key {index}, needs {needed:?} and got {left:?}, and no run was made")
            });
        }
    }

    fn judge_error(&mut self, asked: Asked, failed: &Failed, waited: Duration, now: Reading) {
        let (id, index) = (asked.id, asked.key);
        let key = &self.keys[index];
        // A token that arrived at this moment may be too late for the answer.
        let held = key.held(now).filter(|held| held.landed.awake < now.awake && self.jumped < now.awake);
        // A caller of a target that its profile no longer has waits for a run of that target.
        // Whether a watch may end with an eviction is judged before.
        let may_fail = matches!(asked.kind, RequestKind::Report | RequestKind::Login)
            || asked.evictions < key.moved
            || asked.kind == RequestKind::Watch && matches!(failed.error, CacheError::Evicted);
        if let Some(held) = held.filter(|_| !may_fail) {
            let left = held.left(now);
            return self.broken(|| {
                format!(
                    "#{id}, for key {index}, got an error, and {left:?} are left of what is held: {failed}"
                )
            });
        }
        let recent = |at: Option<Duration>| at.is_some_and(|at| now.boot.saturating_sub(at) <= HELD);
        let paused = self.issuers[key.issuer].paused_at_most;
        let asks_persons = self.catalog.plugins[key.plugin].asks_persons();
        let is_retired = self.gone[key.plugin] || key.retired.is_some_and(|at| at >= asked.at.awake);
        let true_error = match &failed.error {
            CacheError::Retired(_) => is_retired,
            CacheError::Evicted => asked.kind == RequestKind::Watch,
            CacheError::Full(_) => self.scene.capacity.is_some(),
            CacheError::Unattended(_) => asks_persons,
            CacheError::Run(RunError { kind: RunErrorKind::NeedsTerminal, .. }) => {
                asks_persons && recent(key.failed.map(|(boot, _)| boot))
            }
            CacheError::Pending(_) => asked.limit.is_some_and(|limit| waited + TICK >= limit),
            CacheError::Run(RunError { kind: RunErrorKind::Throttled { .. }, .. }) => now.boot <= paused,
            CacheError::Run(RunError { kind: RunErrorKind::Exit(_) | RunErrorKind::Timeout(..), .. })
            | CacheError::Lifetime(..) => {
                recent(key.failed.map(|(boot, _)| boot)) || self.jumped + TICK >= now.awake
            }
            _ => false,
        };
        if !true_error {
            return self
                .broken(|| format!("#{id}, for key {index}, got an error without a reason: {failed:?}"));
        }
        let is_of_plugin = matches!(
            &failed.error,
            CacheError::Run(RunError { kind: RunErrorKind::Exit(_) | RunErrorKind::Timeout(..), .. })
        );
        let Some(user) = asked.user.filter(|_| is_of_plugin) else { return };
        let before = key.failed.map(|(_, awake)| awake).filter(|failed| *failed < asked.at.awake);
        let is_notified = key.notified.get(&user).copied() >= before;
        if asked.kind == RequestKind::Get && asked.evictions == key.evictions && !is_notified {
            return self
                .broken(|| format!("#{id}, for key {index}, got the failure of another command: {failed}"));
        }
        self.keys[index].notified.insert(user, now.awake);
    }
}
