//! How often and how many plugins of an issuer may run.

use std::{collections::VecDeque, time::Duration};

use super::{
    RunSource,
    blame::{Blame, ThrottledRuns},
    gate::{Cause, Class, Gate},
    lane::Party,
    share::uid,
    words::Throttling,
};
use credbroker_plugin::Issuer;

/// The pause after a throttled run that names no time: this, ± 20 %.
const PAUSE: Duration = Duration::from_secs(60);
/// The longest pause that a plugin's stderr can cause, and the longest one without an earlier one: a time in a text is
/// believed only when the next run confirms it.
const LONGEST: Duration = Duration::from_secs(600);
const LONGEST_FIRST: Duration = Duration::from_secs(60);
/// How often a run tries a paused issuer: a pause never keeps all credentials from being renewed.
pub const PROBE_EVERY: Duration = Duration::from_secs(15);
/// The time in which a slow start doubles: it takes 20 s from one run per second to 16. Compared with the default rate
/// of 10 per second, that costs the work of 13 s.
const DOUBLING: Duration = Duration::from_secs(5);
const SECOND: Duration = Duration::from_secs(1);

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

/// What an outcome changed for the issuer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum PaceChange {
    /// A pause of this length began.
    Paused(Duration),
    /// The issuer works again.
    Resumed,
}

/// What is remembered about a run in progress.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunRecord {
    /// The number of pauses before it. A run that started before a pause shows nothing about its end.
    pauses: u64,
    probe: bool,
    /// It does not count among the runs of the issuer.
    is_aside: bool,
    blame: Blame,
    /// The caller whose text the plugin receives was also that of the last throttled run: it cannot extend a pause alone.
    repeats: bool,
}

#[derive(Clone, Copy, Debug)]
enum PaceMode {
    Open,
    Paused { until: Duration },
    Probe { in_flight: bool },
    SlowStart { since: Duration },
}

/// The limits of one issuer, and its pauses. Times are since boot and never go back.
#[derive(Debug)]
pub(super) struct Pace {
    rate: usize,
    concurrency: usize,
    running: usize,
    /// The starts in the last second, at most `rate`.
    starts: VecDeque<Duration>,
    /// When the next background run may start.
    background: Duration,
    mode: PaceMode,
    pauses: u64,
    throttled: ThrottledRuns,
    /// When the pause began, or its last probe.
    probed: Duration,
    /// The uid whose text the plugin of the last probe received, or that of the run that caused the pause.
    last: Option<u32>,
    /// The same of the last throttled run that began or extended the pause.
    offender: Option<u32>,
}

/// How long a throttled run pauses its key or its issuer. `is_first`: no run was throttled since the last success. `u` is
/// uniform in [0, 1).
pub(super) fn pause(throttling: Throttling, is_first: bool, u: f64) -> Duration {
    let longest = if is_first { LONGEST_FIRST } else { LONGEST };
    throttling.retry_after.map_or_else(|| PAUSE.mul_f64(0.8 + 0.4 * u), |named| named.min(longest))
}

impl Pace {
    pub(super) fn new(issuer: &Issuer) -> Self {
        let (rate, concurrency) = (issuer.runs_per_second.get(), issuer.concurrency.get());
        Self {
            rate,
            concurrency,
            running: 0,
            starts: VecDeque::new(),
            background: Duration::ZERO,
            mode: PaceMode::Open,
            pauses: 0,
            throttled: ThrottledRuns::default(),
            probed: Duration::ZERO,
            last: None,
            offender: None,
        }
    }

    /// Sets the limits of a newer configuration. Runs and pauses go on.
    pub(super) fn set_limits(&mut self, issuer: &Issuer) {
        (self.rate, self.concurrency) = (issuer.runs_per_second.get(), issuer.concurrency.get());
    }

    /// How long the pause still lasts at `now`.
    pub(super) fn paused(&self, now: Duration) -> Option<Duration> {
        match self.mode {
            PaceMode::Paused { until } if now < until => Some(until.saturating_sub(now)),
            _ => None,
        }
    }

    /// Whether the runs of `party` may probe a closed issuer. Callers are refused while it is paused; see
    /// [`may_probe`](Self::may_probe). The uid whose text the last probe had is the last to have another one.
    pub(super) fn admits(&self, party: Party, now: Duration) -> bool {
        let uid = match party {
            Party::Peer(_) if self.paused(now).is_some() => return false,
            Party::Peer(process) => Some(uid(process)),
            Party::Broker(uid) => uid,
        };
        uid.is_none() || uid != self.last || self.readmits_at().is_none_or(|at| at <= now)
    }

    /// Whether a run that `peer` waits for may probe the paused issuer, if the gate is open.
    pub(super) fn may_probe(&self, source: RunSource, peer: u64) -> bool {
        source.uid().is_none() || self.last.is_none_or(|last| last != uid(peer) && Some(last) != source.uid())
    }

    /// When the uid of the last probe may have another one.
    pub(super) fn readmits_at(&self) -> Option<Duration> {
        let late = self.probed.saturating_add(2 * PROBE_EVERY);
        match self.mode {
            PaceMode::Paused { until } => Some(until.max(late)),
            PaceMode::Probe { .. } => Some(late),
            PaceMode::Open | PaceMode::SlowStart { .. } => None,
        }
    }

    /// Whether a run of `class` may start at `now`. The passing of time never closes an open gate.
    pub(super) fn gate(&self, class: Class, now: Duration) -> Gate {
        let mut step = None;
        let (rate, concurrency) = match self.mode {
            _ if class == Class::Forced => (self.rate, self.concurrency),
            PaceMode::Open => (self.rate, self.concurrency),
            PaceMode::Paused { until } if now < until.min(self.next_probe()) => {
                let left = until.saturating_sub(now);
                return Gate::At(until.min(self.next_probe()), Cause::Paused { left });
            }
            // A probe that hangs does not keep others from trying.
            PaceMode::Probe { in_flight: true } if now < self.next_probe() => {
                return Gate::At(self.next_probe(), Cause::Probe);
            }
            PaceMode::Paused { .. } | PaceMode::Probe { .. } => (1, self.concurrency),
            PaceMode::SlowStart { since } => match level(since, now) {
                SlowStart { runs, .. } if runs >= self.rate => (self.rate, self.concurrency),
                SlowStart { runs, next } => {
                    step = Some(next);
                    (runs, self.concurrency.min(runs))
                }
            },
        };
        let slow = rate < self.rate;
        // The next step of the slow start may come first.
        let earliest = |at: Duration| step.map_or(at, |step| step.min(at));
        if self.running >= concurrency {
            return match step {
                Some(step) if self.running < self.concurrency => Gate::At(step, Cause::SlowStart),
                _ => Gate::Shut(Cause::Concurrency { runs: self.concurrency }),
            };
        }
        let rated = if slow { Cause::SlowStart } else { Cause::Rate { runs: rate } };
        let oldest = self.starts.len().checked_sub(rate).and_then(|index| self.starts.get(index));
        if let Some(free) = oldest.map(|start| start.saturating_add(SECOND)).filter(|free| now < *free) {
            return Gate::At(earliest(free), rated);
        }
        if class == Class::Background && now < self.background {
            return Gate::At(earliest(self.background), rated);
        }
        Gate::Open
    }

    /// Starts a run of `class` at `now`. The gate must be open.
    pub(super) fn start(&mut self, class: Class, blame: Blame, now: Duration) -> RunRecord {
        let mut rate = self.rate;
        let mut probe = false;
        match self.mode {
            PaceMode::Paused { until } if now < until => probe = class != Class::Forced,
            PaceMode::Paused { .. } | PaceMode::Probe { .. } => {
                (self.mode, probe) = (PaceMode::Probe { in_flight: true }, true);
            }
            PaceMode::SlowStart { since } => match level(since, now).runs {
                runs if runs >= self.rate => self.mode = PaceMode::Open,
                runs => rate = runs,
            },
            PaceMode::Open => {}
        }
        if probe {
            (self.probed, self.last) = (now, blame.sender());
        }
        if class == Class::Background {
            let apart = SECOND / u32::try_from(rate).unwrap_or(u32::MAX);
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
        let repeats = blame.sender().is_some() && blame.sender() == self.offender;
        RunRecord { pauses: self.pauses, probe, is_aside: false, blame, repeats }
    }

    /// Stops counting a run in progress: it waits for a person, and must not delay others.
    pub(super) fn step_aside(&mut self, run: &mut RunRecord) {
        self.running = self.running.saturating_sub(1);
        run.is_aside = true;
        if std::mem::take(&mut run.probe) && matches!(self.mode, PaceMode::Probe { .. }) {
            self.mode = PaceMode::Probe { in_flight: false };
        }
    }

    /// Notes the end of a run. `u` is uniform in [0, 1).
    pub(super) fn finish(
        &mut self,
        run: RunRecord,
        outcome: Outcome,
        u: f64,
        now: Duration,
    ) -> Option<PaceChange> {
        if !run.is_aside {
            self.running = self.running.saturating_sub(1);
        }
        let is_recent = run.pauses == self.pauses;
        let is_closed = matches!(self.mode, PaceMode::Paused { .. } | PaceMode::Probe { .. });
        let is_paused = self.paused(now).is_some();
        match outcome {
            Outcome::Throttled(throttling) => {
                let is_enough = self.throttled.add(run.blame, now);
                let begins = if is_closed { is_recent && !run.repeats } else { is_enough };
                let pause = pause(throttling, !is_closed || !is_recent, u);
                let until = now.saturating_add(pause);
                match &mut self.mode {
                    PaceMode::Paused { until: current } if is_paused => {
                        // Each run that was in progress when the pause began is throttled too.
                        let names_time = throttling.retry_after.is_some() && run.blame.sender().is_none();
                        if begins || (!is_recent && names_time) {
                            *current = until.max(*current);
                        }
                        if begins {
                            self.offender = run.blame.sender();
                        }
                        None
                    }
                    mode if begins => {
                        *mode = PaceMode::Paused { until };
                        self.pauses += 1;
                        (self.probed, self.last) = (now, run.blame.sender());
                        self.offender = self.last;
                        Some(PaceChange::Paused(pause))
                    }
                    PaceMode::Probe { in_flight } if run.probe => {
                        *in_flight = false;
                        None
                    }
                    _ => None,
                }
            }
            Outcome::Success if is_recent && is_closed => Some(self.resume(now)),
            Outcome::Reached if is_recent && run.probe && is_closed && !is_paused => Some(self.resume(now)),
            Outcome::Unknown if is_recent && run.probe && is_closed && !is_paused => {
                self.mode = PaceMode::Probe { in_flight: false };
                None
            }
            Outcome::Success | Outcome::Reached | Outcome::Unknown => None,
        }
    }

    fn resume(&mut self, now: Duration) -> PaceChange {
        self.mode = PaceMode::SlowStart { since: now };
        (self.throttled, self.last, self.offender) = (ThrottledRuns::default(), None, None);
        PaceChange::Resumed
    }

    /// When a paused issuer may be tried again.
    fn next_probe(&self) -> Duration {
        self.probed.saturating_add(PROBE_EVERY)
    }
}

struct SlowStart {
    runs: usize,
    next: Duration,
}

/// The progress of a slow start.
fn level(since: Duration, now: Duration) -> SlowStart {
    let steps = now.saturating_sub(since).as_secs() / DOUBLING.as_secs();
    let steps = u32::try_from(steps).unwrap_or(u32::MAX).min(30);
    SlowStart { runs: 1 << steps, next: since.saturating_add(DOUBLING * (steps + 1)) }
}

#[cfg(test)]
mod tests;
