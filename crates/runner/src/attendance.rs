//! Attending a run: what a plugin run shares with those who watch it, and how long it may take because of them.

use std::{future::pending, sync::Arc, time::Duration};

use tokio::{
    sync::watch,
    time::{Instant, sleep, sleep_until},
};

use crate::{
    error::{RunError, RunErrorKind},
    lease::{Deposit, Lender, PluginCommand},
    transcript::Transcript,
};
use credbroker_plugin::{Provider, Session};
use zeroize::Zeroizing;

/// How long a run that waits for a user is without a place before it tries again to get one.
const NEXT_TRY: Duration = Duration::from_secs(1);

/// One plugin run, as those see it who attend it. The run writes to it, and reads how long it may take.
#[derive(Debug, Default)]
pub struct Attendance {
    /// The session of the user whose request started the run.
    pub session: Option<Arc<Session>>,
    /// The caller in whose terminal the plugin runs; `None`: the broker runs it.
    pub lender: Option<Arc<Lender>>,
    state: watch::Sender<State>,
}

#[derive(Debug, Default)]
struct State {
    attendants: usize,
    /// When the plugin started; `None`: it has not.
    started: Option<Instant>,
    timeout: Duration,
    interactive_timeout: Duration,
    /// It counts as an interactive run.
    has_place: bool,
    /// It went on after `timeout`, because it was attended.
    has_overrun: bool,
    transcript: Transcript,
}

impl State {
    /// The time from its start that the run has: `interactiveTimeout` while a user attends it and it has a place among
    /// the interactive runs, and `timeout` otherwise. Attending never shortens a run.
    fn limit(&self) -> Duration {
        let is_longer = self.attendants > 0 && self.has_place;
        if is_longer { self.interactive_timeout.max(self.timeout) } else { self.timeout }
    }

    /// When it has run for `time`; `None`: never, or it has not started.
    fn after(&self, time: Duration) -> Option<Instant> {
        self.started?.checked_add(time)
    }

    fn elapsed(&self) -> Duration {
        self.started.map(|started| started.elapsed()).unwrap_or_default()
    }

    /// Whether it has run for longer than runs usually do.
    fn takes_long(&self) -> bool {
        self.elapsed() >= self.timeout / 2
    }

    /// Whether it seems to wait for a user: one attends it, and it has written something or takes long.
    fn waits_for_person(&self) -> bool {
        let has_written = self.transcript.count() > 0 || self.transcript.has_partial();
        self.started.is_some() && self.attendants > 0 && (has_written || self.takes_long())
    }
}

impl Attendance {
    /// That of a run which a request with this session starts, in the terminal of `lender` if there is one.
    pub fn of(session: Option<Arc<Session>>, lender: Option<Arc<Lender>>) -> Self {
        Self { session, lender, ..Self::default() }
    }

    /// Notes that the plugin of `provider` starts.
    pub fn started(&self, provider: &Provider) {
        #[expect(clippy::disallowed_methods, reason = "stops in suspend, as the timer of the limit does")]
        let now = Instant::now();
        self.state.send_modify(|state| {
            state.started = Some(now);
            (state.timeout, state.interactive_timeout) = (provider.timeout, provider.interactive_timeout);
        });
    }

    pub(crate) fn wrote(&self, bytes: &[u8]) {
        self.state.send_modify(|state| state.transcript.push(bytes));
    }

    pub(crate) fn has_partial_line(&self) -> bool {
        self.state.borrow().transcript.has_partial()
    }

    pub(crate) fn last_lines(&self, most: usize) -> String {
        self.state.borrow().transcript.last(most)
    }

    pub(crate) fn show_partial_line(&self) {
        self.state.send_modify(|state| state.transcript.flush());
    }

    /// Waits until the run has used up its time, and returns the limit, which follows those who come and leave.
    pub async fn used_up(&self) -> Duration {
        let mut changes = self.state.subscribe();
        loop {
            let (limit, end, timeout) = {
                let state = changes.borrow_and_update();
                let timeout = state.after(state.timeout).filter(|_| !state.has_overrun);
                (state.limit(), state.after(state.limit()), timeout)
            };
            tokio::select! {
                biased;
                () = until(end) => return limit,
                () = until(timeout) => self.state.send_modify(|state| state.has_overrun = true),
                _changed = changes.changed() => {}
            }
        }
    }

    pub(crate) fn timed_out(&self, limit: Duration) -> RunErrorKind {
        let is_longer = limit > self.state.borrow().timeout;
        RunErrorKind::Timeout(limit, if is_longer { "interactiveTimeout" } else { "timeout" })
    }

    /// Waits until the run waits for a user and `take` gives it a place among the interactive runs. From then on it may
    /// take `interactiveTimeout` while it is attended.
    pub async fn take_place(&self, mut take: impl FnMut() -> bool) {
        let mut changes = self.state.subscribe();
        loop {
            let (waits, half) = {
                let state = changes.borrow_and_update();
                let half = state.after(state.timeout / 2).filter(|_| !state.takes_long());
                (state.waits_for_person(), half)
            };
            if !waits {
                tokio::select! {
                    () = until(half) => {}
                    _changed = changes.changed() => {}
                }
            } else if take() {
                return self.state.send_modify(|state| state.has_place = true);
            } else {
                sleep(NEXT_TRY).await;
            }
        }
    }

    /// Lets `lender` run `plugin` while the run has time, and returns what the plugin `command` printed.
    pub async fn lease(
        &self,
        lender: &Lender,
        command: Arc<str>,
        plugin: PluginCommand,
        provider: &Provider,
    ) -> Result<Zeroizing<Vec<u8>>, RunError> {
        self.started(provider);
        let process = lender.process;
        let lost = || RunErrorKind::TerminalLost(process);
        let Some(deposited) = lender.offer(plugin) else { return Err(RunError::new(command, lost())) };
        // For others who attend it, so after the offer. It also means that the run waits for a user from its start.
        let place = format!("the plugin runs in the terminal of process {process}");
        self.wrote(format!("{place}\n").as_bytes());
        let (ended, stderr) = tokio::select! {
            biased;
            deposit = deposited => (deposit.map_err(|_dropped| lost()).and_then(Deposit::stdout), Arc::default()),
            limit = self.used_up() => (Err(self.timed_out(limit)), place.into()),
        };
        ended.map_err(|kind| RunError { command, kind, stderr })
    }

    /// Whether a user attends it.
    pub fn is_attended(&self) -> bool {
        self.state.borrow().attendants > 0
    }

    /// Whether it needed a user: it went on after `timeout`, because it was attended, or it ran in the terminal of one.
    pub fn needed_person(&self) -> bool {
        self.lender.is_some() || self.state.borrow().has_overrun
    }

    /// Counts an attendant until the result is dropped.
    pub fn attend(self: &Arc<Self>) -> Attending {
        self.state.send_modify(|state| state.attendants += 1);
        Attending(Arc::clone(self))
    }

    /// Reads it from the first line that is kept.
    pub fn read(self: &Arc<Self>) -> AttendanceReader {
        let changes = self.state.subscribe();
        AttendanceReader { _attendance: Arc::clone(self), changes, seen: 0, end: None }
    }
}

async fn until(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => pending().await,
    }
}

/// One who attends a run.
#[derive(Debug)]
pub struct Attending(Arc<Attendance>);

impl Drop for Attending {
    fn drop(&mut self) {
        self.0.state.send_modify(|state| state.attendants = state.attendants.saturating_sub(1));
    }
}

/// What is new about a run. The lines may have a device code, so `Debug` does not show them.
#[derive(derive_more::Debug, Default)]
#[debug("AttendanceNews({time_left:?})")]
pub struct AttendanceNews {
    /// Lines of its stderr, sanitized.
    pub lines: Vec<Arc<str>>,
    /// How long it may still take, if that is not what it was before.
    pub time_left: Option<Duration>,
}

/// Reads a run as it goes on.
#[derive(Debug)]
pub struct AttendanceReader {
    /// Keeps the sender of `changes` alive.
    _attendance: Arc<Attendance>,
    changes: watch::Receiver<State>,
    seen: u64,
    end: Option<Instant>,
}

impl AttendanceReader {
    /// Waits until something is new. Cancel safe.
    pub async fn next(&mut self) -> AttendanceNews {
        loop {
            let news = self.news();
            if !news.lines.is_empty() || news.time_left.is_some() {
                return news;
            }
            drop(self.changes.changed().await);
        }
    }

    /// What is new now.
    pub fn news(&mut self) -> AttendanceNews {
        let state = self.changes.borrow_and_update();
        let lines = state.transcript.after(self.seen).collect();
        let end = state.after(state.limit());
        let left = state.limit().saturating_sub(state.elapsed());
        let time_left = end.filter(|end| self.end != Some(*end)).map(|_| left);
        (self.seen, self.end) = (state.transcript.count(), end);
        AttendanceNews { lines, time_left }
    }
}

#[cfg(test)]
mod tests;
