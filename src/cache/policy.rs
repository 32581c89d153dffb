//! What to do with an entry, and when. Pure functions of state and time.

#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use super::{
    CacheError, Failed,
    state::{Current, Failure, State},
};
use crate::credential::{Issued, Lifetime, Material, Now};

/// An entry without a valid credential is forgotten when nobody asked for it for so long.
pub(crate) const IDLE: Duration = Duration::from_secs(300);
/// When the cache is full, only an entry that was not asked for during this time gives way.
pub(crate) const EVICTABLE_AFTER: Duration = Duration::from_secs(60);

/// Answer to one ask.
#[derive(Debug)]
pub(crate) enum Decision {
    /// The credential is valid.
    Serve(Arc<Issued>),
    /// The credential is valid, and it is time for the next one.
    ServeAndRefresh(Arc<Issued>),
    /// There is none: wait for the run in flight, or start one.
    Wait,
    /// There is none, and it is too early to try again.
    Fail(Failed),
}

/// What an ask at `now` gets. Never an expired credential.
pub(crate) fn decide(state: &State, now: Now) -> Decision {
    let held = state.failure.as_ref().filter(|failure| now.boot < failure.retry_at);
    let Some(current) = state.current.as_ref().filter(|current| current.issued.is_valid_at(now)) else {
        return held.map_or(Decision::Wait, |failure| Decision::Fail(failure.at(now)));
    };
    let issued = Arc::clone(&current.issued);
    if current.is_due_at(now) && held.is_none() && !state.running {
        Decision::ServeAndRefresh(issued)
    } else {
        Decision::Serve(issued)
    }
}

/// What somebody gets at `now` whose API server refused `generation`. A newer one, if there is one; else the outcome of
/// one run, if a run is worth it.
pub(crate) fn decide_rejected(state: &mut State, generation: &str, now: Now) -> Decision {
    let decision = decide(state, now);
    let (Decision::Serve(issued) | Decision::ServeAndRefresh(issued)) = &decision else { return decision };
    if issued.generation.to_string() != generation {
        return decision;
    }
    let admitted = state.rejections.admit(issued, now);
    if state.running {
        return Decision::Wait;
    }
    if let Some(failure) = state.failure.as_ref().filter(|failure| now.boot < failure.retry_at) {
        return Decision::Fail(failure.at(now));
    }
    if admitted { Decision::Wait } else { decision }
}

/// What the periodic look at an entry finds to do.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Care {
    /// Nothing.
    Keep,
    /// Start a refresh: it is due and somebody uses the credential.
    Refresh,
    /// Forget it: nothing to serve and nobody asks.
    Drop,
}

/// What to do for an entry that nobody asked for since `idle`. A watch asks all the time.
pub(crate) fn care(state: &State, idle: Duration, watched: bool, now: Now) -> Care {
    match decide(state, now) {
        Decision::ServeAndRefresh(issued) if watched || idle <= issued.lifetime => Care::Refresh,
        Decision::Wait if !watched && !state.running && idle >= IDLE => Care::Drop,
        _ => Care::Keep,
    }
}

/// How long before its expiry a credential that lives `lifetime` is renewed, for `u` uniform in [0, 1).
///
/// A client with a five-minute margin of its own (Python's) never sees the last five minutes of an ordinary credential,
/// and equal credentials are not renewed all at once.
pub(crate) fn lead(lifetime: Duration, u: f64) -> Duration {
    let share = lifetime.mul_f64(0.20 + 0.10 * u);
    let margin = Duration::from_secs_f64(360.0 + 90.0 * u);
    share.max(margin.min(lifetime.mul_f64(0.42 + 0.10 * u)))
}

/// How long the `attempts`th failure in a row is held: full jitter up to 2 s, 4 s, 8 s … 60 s, and never under a second.
pub(crate) fn back_off(attempts: u32, u: f64) -> Duration {
    let ceiling = 2_f64.powi(attempts.clamp(1, 6).cast_signed()).min(60.0);
    Duration::from_secs_f64((ceiling * u).max(1.0))
}

/// When to ask again a plugin that returned what it had returned before: it has a cache of its own.
pub(crate) fn unchanged_retry(left: Duration) -> Duration {
    (left / 3).clamp(Duration::from_secs(10), Duration::from_secs(300))
}

/// What a new credential means for the one that is there.
#[derive(Debug)]
pub(crate) enum Replacement {
    /// The same again: generation, lifetime and expiry stay; only the next try moves.
    Unchanged(Current),
    /// The same material lives longer (or shorter): generation stays.
    Extended(Current),
    /// A rotation.
    Rotated(Current),
}

/// Compares the credential that arrived at `now` with the one that is held.
pub(crate) fn replace(
    old: Option<&Current>,
    material: Material,
    lifetime: Lifetime,
    now: Now,
    u: f64,
    next: impl FnOnce() -> crate::credential::Generation,
) -> Replacement {
    let left = lifetime.expires_at.duration_since(now.wall).unwrap_or_default();
    // A credential lent within the skew tolerance is used up before the plugin runs again.
    let lead = if lifetime.within_skew { Duration::ZERO } else { lead(left, u) };
    let due_in = left.saturating_sub(lead);
    let same = old.filter(|old| old.issued.material.is_same_as(&material));
    if let Some(old) =
        same.filter(|old| old.issued.expires_at == lifetime.expires_at && old.issued.is_valid_at(now))
    {
        return Replacement::Unchanged(old.again(unchanged_retry(left), now));
    }
    let issued = |generation, material| {
        let (expires_at, within_skew) = (lifetime.expires_at, lifetime.within_skew);
        let issued = Issued { generation, material, fetched: now, expires_at, lifetime: left, within_skew };
        Current::new(Arc::new(issued), due_in, now)
    };
    match same {
        Some(old) => {
            let (generation, material) = (old.issued.generation.clone(), Arc::clone(&old.issued.material));
            Replacement::Extended(issued(generation, material))
        }
        None => Replacement::Rotated(issued(next(), Arc::new(material))),
    }
}

/// The failure that follows `last`.
pub(crate) fn fail(last: Option<&Failure>, error: CacheError, now: Now, u: f64) -> Failure {
    let attempts = last.map_or(1, |last| last.attempts.saturating_add(1));
    Failure { error, attempts, retry_at: now.boot.saturating_add(back_off(attempts, u)) }
}
