//! Rejected credentials: what callers and API servers say about one, and whether that is worth a plugin run. Pure.
//!
//! The exec API does not report that a credential was rejected. A process that asks again for the credential that it has
//! suggests it.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime},
};

use futures_util::future::{BoxFuture, Shared};

use credbroker_credential::{Cluster, Issued, Now};

/// Callers remembered per key. One more, and all are forgotten: then a rejection may be noticed later.
const REMEMBERED: usize = 1024;
/// The list of callers grows by so many, so that little of it is unused.
const GROWTH: usize = 16;
/// A caller that does not ask again for so long has used its credential successfully.
const SATISFIED_AFTER: Duration = Duration::from_secs(10);

/// The caller of a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Caller {
    /// A hash of the name that the caller gave for the process that uses the credential; 0: it gave none.
    pub name: u64,
    /// The process according to the kernel: its uid in the upper half, its process ID in the lower one, or 0 if the kernel
    /// does not show that. Uids and processes share runs and entries fairly.
    pub peer: u64,
    /// It set no `KUBERNETES_EXEC_INFO`: its repeated requests are verified, and are not evidence by themselves.
    pub without_exec_info: bool,
    /// A user waits for the answer.
    pub at_terminal: bool,
}

/// The broker itself.
impl Default for Caller {
    fn default() -> Self {
        Self { name: 0, peer: Self::BROKER, without_exec_info: false, at_terminal: false }
    }
}

impl Caller {
    /// The peer that is the broker itself: no process has this uid.
    pub const BROKER: u64 = credbroker_runner::BROKER;

    /// Its name; of one without a name, its process.
    pub(crate) fn id(&self) -> u64 {
        if self.name == 0 { self.peer } else { self.name }
    }
}

/// The generation that each caller received last, sorted by name. Each caller takes 16 bytes.
#[derive(Debug, Default)]
pub(crate) struct Callers(Mutex<Vec<Given>>);

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Given {
    name: u64,
    generation: u32,
    /// When it received it, in tenths of a second since boot, shifted left by [`FLAGS`]; then the flags.
    since_and_flags: u32,
}

/// It asked for this generation again.
const ASKED_AGAIN: u32 = 1;
/// It asked again within [`SATISFIED_AFTER`].
const AT_ONCE: u32 = 2;
/// It asked for the previous generation again.
const REJECTED_BEFORE: u32 = 4;
const FLAGS: u32 = 3;

impl Callers {
    /// Notes that the caller `name` receives `generation` at `now`. Returns whether it has that one already.
    pub(crate) fn repeats(&self, name: u64, generation: u64, now: Duration) -> bool {
        if name == 0 {
            return false;
        }
        let (generation, since) = (low_bits(generation), tenths(now) << FLAGS);
        let mut callers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = callers.binary_search_by_key(&name, |given| given.name);
        if let Some(given) = found.ok().and_then(|index| callers.get_mut(index)) {
            if given.generation == generation {
                let satisfied = given.since_and_flags >> FLAGS <= satisfied_since(now);
                given.since_and_flags |= ASKED_AGAIN | if satisfied { 0 } else { AT_ONCE };
                return true;
            }
            let before = if given.since_and_flags & ASKED_AGAIN == 0 { 0 } else { REJECTED_BEFORE };
            *given = Given { name, generation, since_and_flags: since | before };
            return false;
        }
        if callers.len() >= REMEMBERED {
            callers.clear();
        } else if callers.len() == callers.capacity() {
            callers.reserve_exact(GROWTH);
        }
        let index = found.unwrap_or_else(|index| index).min(callers.len());
        callers.insert(index, Given { name, generation, since_and_flags: since });
        false
    }

    /// Whether the caller `name` has received something.
    pub(crate) fn has(&self, name: u64) -> bool {
        let callers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        callers.binary_search_by_key(&name, |given| given.name).is_ok()
    }

    /// Whether `generation` was used successfully: a caller that had asked again for the previous one did not ask again
    /// for ten seconds, or two other callers did not.
    pub(crate) fn accepted(&self, generation: u64, now: Duration) -> bool {
        let generation = low_bits(generation);
        let callers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let satisfied = callers.iter().filter(|given| {
            given.generation == generation
                && given.since_and_flags & AT_ONCE == 0
                && given.since_and_flags >> FLAGS <= satisfied_since(now)
        });
        let weight = |given: &Given| if given.since_and_flags & REJECTED_BEFORE == 0 { 1 } else { 2 };
        satisfied.map(weight).sum::<usize>() >= 2
    }
}

/// They tell the generations of one key apart.
#[expect(clippy::cast_possible_truncation, reason = "on purpose")]
fn low_bits(generation: u64) -> u32 {
    generation as u32
}

/// One and a half years fit into the bits.
fn tenths(since_boot: Duration) -> u32 {
    u32::try_from(since_boot.as_millis() / 100).unwrap_or(u32::MAX) & (u32::MAX >> FLAGS)
}

/// A caller that received a generation before, and has not asked again, uses it successfully.
fn satisfied_since(now: Duration) -> u32 {
    tenths(now.saturating_sub(SATISFIED_AFTER))
}

/// The verdict of an API server about a credential.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Verdict {
    /// 401: the credential does not authenticate.
    Rejected,
    /// It authenticates a user, who may not be allowed to send this request.
    Accepted,
    /// Unknown: there was no request, no response, or another status.
    Unverifiable,
}

/// The shortest time between two runs for rejections, between two logins that succeed, between a failure and a run for a
/// process that has received it, and between a run and one for a longer lifetime. An unverified rejection of a younger
/// generation starts no run.
pub(crate) const PAUSE: Duration = Duration::from_secs(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(300);
/// The shortest time between two verifications of one credential.
pub(crate) const VERIFY_EVERY: Duration = Duration::from_secs(5);
/// For how long after a verdict two requests are evidence against it: the server may have cached it.
const DOUBT: Duration = Duration::from_secs(30);

/// What is known about rejections of one key.
#[derive(Clone, Copy, Debug, Default)]
pub struct RejectionStatus {
    /// Rejections that a client reported or an API server confirmed.
    pub count: u64,
    /// Verifications with an API server.
    pub verifications: u64,
    /// The result of the last of them.
    pub verdict: Option<Verdict>,
    /// From this time on a report starts a run, by the wall clock; `None`: from now on. A rejection that an API server
    /// confirms, or that a second process reports, may start one earlier.
    pub next_run: Option<SystemTime>,
}

/// What limits the runs that a client can cause by reporting rejections of one key, or asking again, over and over.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rejections {
    /// Without the time of the next run.
    pub known: RejectionStatus,
    /// The last verification. While it is in progress, it holds the credential.
    pub verification: Option<Verification>,
    /// When a rejection last started a run, since boot, and of which generation.
    last_run: Option<(Duration, u64)>,
    /// The time between that run and the next one for a rejection.
    pause: Duration,
    /// The current generation, and when the first evidence against it came.
    first: Option<(u64, Duration)>,
    /// The last suspicion: the generation, the caller, and when.
    last: Option<(u64, Caller, Duration)>,
    /// A generation, since when the server accepts it, and the requests of callers that asked again nevertheless.
    doubts: Option<(u64, Duration, u8)>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Evidence {
    /// A caller reports that an API server answered 401.
    Reported,
    /// An API server answered 401 to the broker.
    Verified,
    /// A caller asked again, and the broker cannot ask the API server. Other callers may use the generation successfully.
    Repeated { accepted: bool },
    /// The API server accepts it, but callers ask again.
    Doubted,
}

impl Rejections {
    /// The evidence for a run in the API server's verdict about `issued`, which `caller` asked for again at `since`.
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
            Verdict::Accepted => self.doubt(issued, since, now).then_some(Evidence::Doubted),
            Verdict::Unverifiable => Some(Evidence::Repeated { accepted }),
        }
    }

    /// API servers cache verdicts. Returns whether callers asked again so often after one that it may be outdated.
    fn doubt(&mut self, issued: &Issued, since: Now, now: Now) -> bool {
        let generation = issued.generation.number();
        let is_recent = |at: Duration| now.boot.saturating_sub(at) <= DOUBT;
        match &mut self.doubts {
            Some((of, accepted_at, requests)) if *of == generation && is_recent(*accepted_at) => {
                // A request from before the verdict is not evidence against it.
                let is_later = since.boot >= *accepted_at;
                *requests = requests.saturating_add(u8::from(is_later));
                is_later && *requests >= 2
            }
            doubts => {
                *doubts = Some((generation, now.boot, 0));
                false
            }
        }
    }

    /// Notes that there is evidence against `issued` at `now`.
    pub(crate) fn note(&mut self, issued: &Issued, now: Now) {
        if !self.concern(issued) {
            self.first = Some((issued.generation.number(), now.boot));
        }
    }

    /// Whether there is evidence against `issued`.
    pub(crate) fn concern(&self, issued: &Issued) -> bool {
        self.first.is_some_and(|(number, _)| number == issued.generation.number())
    }

    /// Notes `evidence` against `issued` at `now`, and a run if it starts one. If it is too early for that, returns the time
    /// since boot from which on the same evidence starts one. `failed`: the last run brought no credential, which does not
    /// show whether runs help.
    pub(crate) fn admit(
        &mut self,
        issued: &Issued,
        caller: &Caller,
        evidence: Evidence,
        failed: bool,
        now: Now,
    ) -> Result<(), Duration> {
        let generation = issued.generation.number();
        self.note(issued, now);
        let is_second = self.is_second(issued, caller, now);
        self.last = Some((generation, *caller, now.boot));
        let in_vain = !failed && self.last_run_was_in_vain(issued, evidence);
        let mature = if evidence == Evidence::Verified { Duration::ZERO } else { mature_at(issued) };
        let after = |pause| self.last_run.map_or(mature, |(last, _)| mature.max(last.saturating_add(pause)));
        let alone = after(if in_vain { self.pause } else { PAUSE });
        if now.boot < if is_second { after(PAUSE) } else { alone } {
            // The next request of this caller will not be the second one.
            return Err(alone);
        }
        let longest = (issued.lifetime / 2).clamp(PAUSE, LONGEST_PAUSE);
        self.pause = if in_vain { (self.pause * 2).clamp(PAUSE, longest) } else { PAUSE };
        (self.last_run, self.doubts) = (Some((now.boot, generation)), None);
        Ok(())
    }

    /// Whether another process asked for the same generation again a short time ago, which is stronger evidence.
    fn is_second(&self, issued: &Issued, caller: &Caller, now: Now) -> bool {
        self.last.is_some_and(|(generation, other, at)| {
            generation == issued.generation.number()
                && other.name != caller.name
                // Processes that the kernel does not show differ by their names only.
                && (other.peer != caller.peer || caller.peer & u64::from(u32::MAX) == 0)
                && now.boot.saturating_sub(at) <= SATISFIED_AFTER
        })
    }

    /// Whether the last run for a rejection was in vain: it brought the same credential, or one that was rejected immediately.
    fn last_run_was_in_vain(&self, issued: &Issued, evidence: Evidence) -> bool {
        let Some((_, rejected)) = self.last_run else { return false };
        let at_once = |(_, at): (u64, Duration)| at.saturating_sub(issued.fetched.boot) < PAUSE;
        match evidence {
            _ if issued.generation.number() == rejected => true,
            Evidence::Repeated { accepted } => !accepted,
            Evidence::Reported | Evidence::Verified | Evidence::Doubted => self.first.is_some_and(at_once),
        }
    }

    /// When a report of `issued` starts a run, at the latest, since boot; `None`: at `now`.
    pub(crate) fn not_before(&self, issued: Option<&Issued>, now: Now) -> Option<Duration> {
        let paused = self.last_run.map(|(last, _)| last.saturating_add(self.pause));
        paused.into_iter().chain(issued.map(mature_at)).max().filter(|until| now.boot < *until)
    }
}

/// When an unverified rejection of `issued` may start a run, since boot.
fn mature_at(issued: &Issued) -> Duration {
    issued.fetched.boot.saturating_add(PAUSE)
}

/// Asks an API server whether it accepts a credential.
pub type VerifyFn = Arc<dyn Fn(Arc<Issued>, Arc<Cluster>) -> BoxFuture<'static, Verdict> + Send + Sync>;

/// A verification with an API server. All callers that suspect the credential share its result.
#[derive(Clone, Debug)]
pub(crate) struct Verification {
    /// When it started, since boot.
    pub started: Duration,
    pub generation: u64,
    pub server: String,
    /// The verification ends when neither this nor a caller needs the verdict.
    pub verdict: Shared<BoxFuture<'static, Verdict>>,
}

#[cfg(test)]
mod tests;
