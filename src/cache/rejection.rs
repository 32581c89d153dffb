//! Credentials that an API server refused, or seems to have refused: when that is worth a plugin run. Pure.

#[cfg(test)]
mod tests;

use std::time::Duration;

use super::caller::{Caller, SATISFIED_AFTER};
use crate::{
    credential::{Issued, Now},
    verify::Verdict,
};

/// Between two runs for rejections there is at least this time, and an unverified rejection of a younger generation
/// starts none.
pub(crate) const PAUSE: Duration = Duration::from_secs(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(300);
/// An API server is asked about one credential at most once in this time.
pub(crate) const VERIFY_EVERY: Duration = Duration::from_secs(5);
/// For how long callers that come back speak against a verdict that the server may have cached.
const DOUBT: Duration = Duration::from_secs(30);
/// Callers that speak against a verdict and are remembered.
const DOUBTERS: usize = 4;

/// What is known of rejections of one key. A client that reports, or asks again, without end must not become a storm at
/// the issuer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rejections {
    /// Reports and suspicions.
    pub(crate) count: u64,
    /// Answers of an API server.
    pub(crate) verifications: u64,
    /// The last of them.
    pub(crate) verdict: Option<Verdict>,
    /// The last run that a rejection started, by time since boot.
    last_run: Option<Duration>,
    /// The generation that it was started for.
    refused: u64,
    /// What the next run for a rejection waits for after the last one.
    pause: Duration,
    /// The first evidence against the generation that is held.
    first: Option<(u64, Duration)>,
    /// The last suspicion, of which generation, by whom.
    last: Option<(u64, Caller, Duration)>,
    /// Who came back although the server accepts the generation, and how often.
    doubts: Option<Doubts>,
}

#[derive(Clone, Debug)]
struct Doubts {
    generation: u64,
    since: Duration,
    callers: Vec<(u64, u8)>,
}

/// What speaks for a run.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Evidence {
    /// A caller says that an API server answered 401.
    Reported,
    /// The broker saw the 401.
    Verified,
    /// A caller came back, and the broker cannot ask.
    Repeated {
        /// Other callers use the generation with success.
        accepted: bool,
    },
    /// The server accepts it, yet callers come back.
    Doubted,
}

impl Rejections {
    /// Counts a report or a suspicion.
    pub(crate) fn note(&mut self) {
        self.count += 1;
    }

    /// Notes what the server answered about `issued` after `caller` came back, at `since`. Returns what speaks for a run,
    /// if anything does; `accepted`: other callers use this generation with success.
    pub(crate) fn weigh(
        &mut self,
        issued: &Issued,
        caller: &Caller,
        verdict: Verdict,
        accepted: bool,
        (since, now): (Now, Now),
    ) -> Option<Evidence> {
        match verdict {
            Verdict::Rejected => Some(Evidence::Verified),
            _ if caller.without_exec_info => None,
            Verdict::Accepted => self.doubt(issued, caller, since, now).then_some(Evidence::Doubted),
            Verdict::Unverifiable => Some(Evidence::Repeated { accepted }),
        }
    }

    /// Servers cache verdicts: whether callers came back so often after one that it may be old.
    fn doubt(&mut self, issued: &Issued, caller: &Caller, since: Now, now: Now) -> bool {
        let generation = issued.generation.number();
        let doubts = match &mut self.doubts {
            Some(doubts)
                if doubts.generation == generation && now.boot.saturating_sub(doubts.since) <= DOUBT =>
            {
                doubts
            }
            stale => {
                // A suspicion from before the verdict is not a doubt of it.
                *stale = Some(Doubts { generation, since: now.boot, callers: Vec::new() });
                return false;
            }
        };
        if since.boot < doubts.since {
            return false;
        }
        if let Some((_, times)) = doubts.callers.iter_mut().find(|(name, _)| *name == caller.name) {
            *times = times.saturating_add(1);
        } else if doubts.callers.len() < DOUBTERS {
            doubts.callers.push((caller.name, 1));
        }
        doubts.callers.len() >= 2 || doubts.callers.iter().any(|(_, times)| *times >= 2)
    }

    /// Whether `evidence` against `issued` starts a run at `now`. If so, it is noted. `failed`: the last run brought
    /// nothing, which says nothing about whether runs help.
    pub(crate) fn admit(
        &mut self,
        issued: &Issued,
        caller: &Caller,
        evidence: Evidence,
        failed: bool,
        now: Now,
    ) -> bool {
        let generation = issued.generation.number();
        if self.first.is_none_or(|(number, _)| number != generation) {
            self.first = Some((generation, now.boot));
        }
        let two = self.is_second(issued, caller, now);
        self.last = Some((generation, *caller, now.boot));
        let age = now.boot.saturating_sub(issued.fetched.boot);
        let useless = !failed && self.last_run_was_useless(issued, evidence);
        let young = evidence != Evidence::Verified && age < PAUSE;
        let pause = if two || !useless { PAUSE } else { self.pause };
        let paused = self.last_run.is_some_and(|last| now.boot < last.saturating_add(pause));
        if young || paused {
            return false;
        }
        let longest = (issued.lifetime / 2).clamp(PAUSE, LONGEST_PAUSE);
        self.pause = if useless { (self.pause * 2).clamp(PAUSE, longest) } else { PAUSE };
        (self.last_run, self.refused) = (Some(now.boot), generation);
        self.doubts = None;
        true
    }

    /// Whether another caller came back for the same generation a short time ago: that weighs more than repeats of one.
    fn is_second(&self, issued: &Issued, caller: &Caller, now: Now) -> bool {
        self.last.is_some_and(|(generation, other, at)| {
            generation == issued.generation.number()
                && other.name != caller.name
                && other.peer != caller.peer
                && now.boot.saturating_sub(at) <= SATISFIED_AFTER
        })
    }

    /// Whether the last run for a rejection did not help: what it brought was refused at once, or it brought nothing
    /// new.
    fn last_run_was_useless(&self, issued: &Issued, evidence: Evidence) -> bool {
        let generation = issued.generation.number();
        if self.last_run.is_none() {
            return false;
        }
        let at_once = |(number, at): (u64, Duration)| {
            number == generation && at.saturating_sub(issued.fetched.boot) < PAUSE
        };
        match evidence {
            _ if generation == self.refused => true,
            Evidence::Repeated { accepted } => !accepted,
            Evidence::Reported | Evidence::Verified | Evidence::Doubted => self.first.is_some_and(at_once),
        }
    }

    /// How long a report of `issued` that [`admit`](Self::admit) refused at `now` has to wait until one can start a run.
    pub(crate) fn retry_after(&self, issued: &Issued, now: Now) -> Duration {
        let young_until = issued.fetched.boot.saturating_add(PAUSE);
        young_until.max(self.not_before(now).unwrap_or_default()).saturating_sub(now.boot)
    }

    /// Time since boot before which no rejection starts a run; `None`: the next one may.
    pub(crate) fn not_before(&self, now: Now) -> Option<Duration> {
        let until = self.last_run?.saturating_add(self.pause);
        (now.boot < until).then_some(until)
    }
}
