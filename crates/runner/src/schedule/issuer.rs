//! How often and how many plugins of an issuer may run. Pure.

use std::{collections::VecDeque, time::Duration};

use super::{
    throttling::Throttling,
    turns::{Cause, Class, Party, RunSource},
};
use credbroker_plugin::{Issuer, PluginKey};

/// The pause after a throttled run that names no time: this, ± 20 %.
const PAUSE: Duration = Duration::from_secs(60);
/// The longest pause that a plugin's stderr can cause, and the longest one without an earlier one: a time in a text is
/// believed only when the next run confirms it.
const LONGEST: Duration = Duration::from_secs(600);
const LONGEST_FIRST: Duration = Duration::from_secs(60);
/// How often a run tries a paused issuer: a pause never keeps all credentials from being refreshed.
pub const PROBE_EVERY: Duration = Duration::from_secs(15);
/// How long a throttled run is remembered: more than the longest pause without a time, so that keys that are tried again
/// after their own pauses are counted together.
const MEMORY: Duration = Duration::from_secs(120);
const SECOND: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Gate {
    Open,
    /// Not before this time, and why.
    At(Duration, Cause),
    /// Not before another run of the issuer ends.
    Shut(Cause),
}

/// What the end of a run shows about the issuer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Outcome {
    /// It brought a credential.
    Success,
    /// It failed for another reason than too many runs.
    Reached,
    /// The issuer asked for fewer runs.
    Throttled(Throttling),
    /// Nothing: the plugin did not run to its end.
    Unknown,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum PaceChange {
    /// A pause of this length began.
    Paused(Duration),
    /// The issuer works again.
    Resumed,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct StartedRun {
    pub(super) class: Class,
    source: RunSource,
    /// In whose turn it started.
    pub(super) party: Party,
    /// It waits for a user, and does not count among the others.
    pub(super) is_aside: bool,
    /// The number of pauses before it. A run that started before a pause shows nothing about its end.
    pauses: u64,
    probe: bool,
}

impl StartedRun {
    /// The uid whose text the plugin receives.
    fn sender(&self) -> Option<u32> {
        self.party.sender.filter(|_| self.source.uid().is_some())
    }
}

/// Remembers `new`. Returns whether there was another one a short time ago.
fn differs<T: Copy + PartialEq>(last: &mut Option<(T, Duration)>, new: Option<T>, now: Duration) -> bool {
    let Some(new) = new else { return false };
    let before = last.replace((new, now));
    before.is_some_and(|(before, at)| before != new && now.saturating_sub(at) <= MEMORY)
}

/// The issuer asked for fewer runs. Until one succeeds, it is tried every [`PROBE_EVERY`], then by one run at a time.
#[derive(Clone, Copy, Debug)]
struct Pause {
    until: Duration,
    /// When the pause began, or its last probe.
    probed: Duration,
    /// A probe is in progress that began after the end of the pause.
    is_trying: bool,
    /// The uid whose text the plugin of the last probe received, or that of the run that caused the pause.
    last: Option<u32>,
    /// The same of the last throttled run that began or extended the pause.
    offender: Option<u32>,
}

impl Pause {
    /// When the next probe may start, and why not before.
    fn next_probe(&self, now: Duration) -> Option<(Duration, Cause)> {
        let next = self.probed.saturating_add(PROBE_EVERY);
        let left = self.until.saturating_sub(now);
        let (next, cause) = if left > Duration::ZERO {
            (self.until.min(next), Cause::Paused(left))
        } else {
            // A probe that hangs does not keep others from trying.
            (if self.is_trying { next } else { now }, Cause::Probe)
        };
        (now < next).then_some((next, cause))
    }

    /// When the uid of the last probe may have another one.
    fn readmits_at(&self) -> Duration {
        self.until.max(self.probed.saturating_add(2 * PROBE_EVERY))
    }
}

/// The limits of one issuer, and its pauses. Times are since boot and never go back.
#[derive(Debug, Default)]
pub(super) struct Pace {
    rate: usize,
    concurrency: usize,
    running: usize,
    /// The starts in the last second, at most `rate`.
    starts: VecDeque<Duration>,
    /// When the next background run may start.
    background: Duration,
    pause: Option<Pause>,
    pauses: u64,
    /// The last throttled runs since the issuer worked. A caller can make the plugin of its run write anything, so one uid
    /// shows nothing about the issuer. Two keys that the configuration alone defines do, and so do two uids.
    throttled_key: Option<(PluginKey, Duration)>,
    throttled_uid: Option<(u32, Duration)>,
    /// The last turn in which a run started.
    pub(super) turn: u64,
}

/// How long a throttled run pauses its key or issuer. `is_first`: since the last success. `u` is uniform in [0, 1).
pub(super) fn pause(throttling: Throttling, is_first: bool, u: f64) -> Duration {
    let longest = if is_first { LONGEST_FIRST } else { LONGEST };
    throttling.retry_after.map_or_else(|| PAUSE.mul_f64(0.8 + 0.4 * u), |named| named.min(longest))
}

impl Pace {
    pub(super) fn new(issuer: &Issuer) -> Self {
        let mut pace = Self::default();
        pace.set_limits(issuer);
        pace
    }

    /// Sets the limits of a newer configuration. Runs and pauses go on.
    pub(super) fn set_limits(&mut self, issuer: &Issuer) {
        (self.rate, self.concurrency) = (issuer.runs_per_second.get(), issuer.concurrency.get());
    }

    pub(super) fn paused(&self, now: Duration) -> Option<Duration> {
        let left = self.pause?.until.saturating_sub(now);
        (left > Duration::ZERO).then_some(left)
    }

    /// Whether the runs of `party` may probe a closed issuer. Callers are refused while it is paused; see
    /// [`may_probe`](Self::may_probe). The uid whose text the last probe had is the last to have another one.
    pub(super) fn admits(&self, party: Party, now: Duration) -> bool {
        let Some(pause) = &self.pause else { return true };
        let is_refused = now < pause.until && party.process.is_some();
        let sender = party.sender;
        !is_refused && (sender.is_none() || sender != pause.last || pause.readmits_at() <= now)
    }

    /// Whether a run that `peer` waits for may probe the paused issuer, if the gate is open.
    pub(super) fn may_probe(&self, source: RunSource, peer: Party) -> bool {
        let last = self.pause.and_then(|pause| pause.last);
        source.uid().is_none() || last.is_none() || (last != peer.sender && last != source.uid())
    }

    /// When a run of `class` may start, if that is a matter of time; `None`: now, or when another one ends.
    pub(super) fn opens_at(&self, class: Class, now: Duration) -> Option<Duration> {
        match self.gate(class, now) {
            Gate::At(at, _) => Some(at),
            Gate::Open => self.pause.map(|pause| pause.readmits_at()).filter(|at| now < *at),
            Gate::Shut(_) => None,
        }
    }

    /// Whether a run of `class` may start at `now`. The passing of time never closes an open gate.
    pub(super) fn gate(&self, class: Class, now: Duration) -> Gate {
        let probe = self.pause.filter(|_| class != Class::Forced).and_then(|pause| pause.next_probe(now));
        if let Some((at, cause)) = probe {
            return Gate::At(at, cause);
        }
        if self.running >= self.concurrency {
            return Gate::Shut(Cause::Concurrency(self.concurrency));
        }
        let rated = Cause::Rate(self.rate);
        let oldest = self.starts.len().checked_sub(self.rate).and_then(|index| self.starts.get(index));
        match oldest.map(|start| start.saturating_add(SECOND)).filter(|free| now < *free) {
            Some(free) => Gate::At(free, rated),
            None if class == Class::Background && now < self.background => Gate::At(self.background, rated),
            None => Gate::Open,
        }
    }

    /// Starts a run of `class` in the turn of `party`. The gate must be open.
    pub(super) fn start(
        &mut self,
        class: Class,
        (source, party): (RunSource, Party),
        now: Duration,
    ) -> StartedRun {
        let pauses = self.pauses;
        let mut run = StartedRun { class, source, party, is_aside: false, pauses, probe: false };
        if let Some(pause) = &mut self.pause {
            run.probe = class != Class::Forced || pause.until <= now;
            if run.probe {
                (pause.probed, pause.last, pause.is_trying) = (now, run.sender(), pause.until <= now);
            }
        }
        if class == Class::Background {
            let apart = SECOND / u32::try_from(self.rate).unwrap_or(u32::MAX);
            // A late start is compensated, but only by half of the distance.
            self.background = self.background.max(now.saturating_sub(apart / 2)).saturating_add(apart);
        }
        self.running += 1;
        while self.starts.len() >= self.rate
            || self.starts.front().is_some_and(|start| start.saturating_add(SECOND) <= now)
        {
            self.starts.pop_front();
        }
        self.starts.push_back(now);
        run
    }

    /// Stops counting a run in progress: it waits for a user, and must not delay others.
    pub(super) fn step_aside(&mut self, run: &mut StartedRun) {
        self.running = self.running.saturating_sub(1);
        run.is_aside = true;
        if std::mem::take(&mut run.probe) {
            self.pause.iter_mut().for_each(|pause| pause.is_trying = false);
        }
    }

    /// Notes the end of a run. `u` is uniform in [0, 1).
    pub(super) fn finish(
        &mut self,
        run: StartedRun,
        outcome: Outcome,
        u: f64,
        now: Duration,
    ) -> Option<PaceChange> {
        if !run.is_aside {
            self.running = self.running.saturating_sub(1);
        }
        if let Outcome::Throttled(throttling) = outcome {
            return self.throttled(run, throttling, u, now);
        }
        let pause = self.pause.as_mut().filter(|_| run.pauses == self.pauses)?;
        let probed_after = run.probe && pause.until <= now;
        match outcome {
            Outcome::Success => {}
            Outcome::Reached if probed_after => {}
            Outcome::Unknown if probed_after => {
                pause.is_trying = false;
                return None;
            }
            _ => return None,
        }
        (self.pause, self.throttled_key, self.throttled_uid) = (None, None, None);
        Some(PaceChange::Resumed)
    }

    fn throttled(
        &mut self,
        run: StartedRun,
        throttling: Throttling,
        u: f64,
        now: Duration,
    ) -> Option<PaceChange> {
        let key = if let RunSource::Configuration(key) = run.source { Some(key) } else { None };
        let is_enough = differs(&mut self.throttled_key, key, now)
            | differs(&mut self.throttled_uid, run.party.sender, now);
        let (is_recent, sender) = (run.pauses == self.pauses, run.sender());
        // A uid whose text the plugin receives cannot extend a pause alone.
        let extends = |pause: &Pause| is_recent && (sender.is_none() || sender != pause.offender);
        let begins = self.pause.as_ref().map_or(is_enough, extends);
        let length = pause(throttling, self.pause.is_none() || !is_recent, u);
        let until = now.saturating_add(length);
        match &mut self.pause {
            Some(pause) if now < pause.until => {
                // Each run that was in progress when the pause began is throttled too.
                let names_time = throttling.retry_after.is_some() && sender.is_none();
                if begins || (!is_recent && names_time) {
                    pause.until = until.max(pause.until);
                }
                if begins {
                    pause.offender = sender;
                }
                None
            }
            _ if begins => {
                self.pauses += 1;
                self.pause =
                    Some(Pause { until, probed: now, is_trying: false, last: sender, offender: sender });
                Some(PaceChange::Paused(length))
            }
            Some(pause) => {
                pause.is_trying &= !run.probe;
                None
            }
            None => None,
        }
    }
}

#[cfg(test)]
mod tests;
