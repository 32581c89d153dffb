//! The deadline, and the only place where the blocking client waits.

use std::{
    fmt,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, Timespec, poll},
    io::Errno,
};

use super::timeouts::Timeouts;

/// A callback for a user who waits.
pub struct Notice<'a> {
    after: Duration,
    notify: &'a mut dyn FnMut(),
    attend: Option<&'a mut dyn FnMut(&str)>,
    lend: Option<&'a mut dyn FnMut()>,
}

/// How to attend a plugin run.
pub(super) struct Attending<'a> {
    /// When to begin.
    pub(super) after: Duration,
    /// Gets the lines of the plugin.
    pub(super) lines: &'a mut dyn FnMut(&str),
    /// Is called before the plugin gets the terminal of this process; `None`: it does not.
    pub(super) lend: Option<&'a mut dyn FnMut()>,
}

impl<'a> Notice<'a> {
    /// Calls `notify` once when a call takes longer than `after`, on the thread that waits.
    pub fn new(after: Duration, notify: &'a mut dyn FnMut()) -> Self {
        Self { after, notify, attend: None, lend: None }
    }

    /// Also attends the plugin run that the call waits for: calls `lines` with each line that the plugin has written to
    /// stderr, and each that it writes. The broker has sanitized them.
    #[must_use]
    pub fn attend(mut self, lines: &'a mut dyn FnMut(&str)) -> Self {
        self.attend = Some(lines);
        self
    }

    /// Also runs the plugin in the terminal of this process, if it reads from one and the broker asks for that: with the
    /// broker's command and environment, and standard input and standard error of this process. Only if both are
    /// terminals, the broker runs as this very user, and only this user and root can replace its socket. Has no effect
    /// without [`attend`](Self::attend). `before` is called before the plugin starts.
    #[must_use]
    pub fn lend_terminal(mut self, before: &'a mut dyn FnMut()) -> Self {
        self.lend = Some(before);
        self
    }

    /// How to attend the run.
    pub(super) fn take_attending(&mut self) -> Option<Attending<'a>> {
        Some(Attending { after: self.after, lines: self.attend.take()?, lend: self.lend.take() })
    }
}

impl fmt::Debug for Notice<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notice").field("after", &self.after).finish_non_exhaustive()
    }
}

/// When to give up. As with the kernel's timers, time in suspend does not count.
#[derive(Debug)]
pub(super) struct Deadline<'a> {
    start: Instant,
    limit: Duration,
    silence: Duration,
    notice: Option<Notice<'a>>,
}

impl<'a> Deadline<'a> {
    pub(super) fn starting_now(timeouts: Timeouts, notice: Option<Notice<'a>>) -> Self {
        let Timeouts { total: limit, silence, .. } = timeouts;
        Self { start: now(), limit, silence, notice }
    }

    /// A broker sends its SETTINGS as soon as it accepts. A process that sends nothing for this long is not a broker, or
    /// hangs.
    pub(super) const fn silence(&self) -> Duration {
        self.silence
    }

    /// The time that the caller allowed.
    pub(super) const fn limit(&self) -> Duration {
        self.limit
    }

    pub(super) fn left(&self) -> Duration {
        self.limit.saturating_sub(self.passed())
    }

    /// Waits longer, if it must: at least for `left` from now on.
    pub(super) fn extend(&mut self, left: Duration) {
        self.limit = self.limit.max(self.passed().saturating_add(left));
    }

    /// No longer gives a notice.
    pub(super) fn be_quiet(&mut self) {
        self.notice = None;
    }

    pub(super) fn passed(&self) -> Duration {
        now().saturating_duration_since(self.start)
    }

    pub(super) fn is_over(&self) -> bool {
        self.left().is_zero()
    }

    /// Waits until the descriptor is ready, at most for `at_most` and until the deadline. Returns whether it is ready.
    pub(super) fn wait(&mut self, descriptor: PollFd<'_>, at_most: Duration) -> Result<bool, Errno> {
        self.poll(&mut [descriptor], at_most)
    }

    /// Waits for `duration`, at most until the deadline.
    pub(super) fn pause(&mut self, duration: Duration) {
        // Without descriptors there is nothing that can fail.
        self.poll(&mut [], duration).unwrap_or_default();
    }

    fn poll(&mut self, descriptors: &mut [PollFd<'_>], at_most: Duration) -> Result<bool, Errno> {
        let mut passed = self.passed();
        let end = passed.saturating_add(at_most).min(self.limit);
        loop {
            if let Some(notice) = self.notice.take_if(|notice| notice.after <= passed) {
                (notice.notify)();
            }
            let next = self.notice.as_ref().map_or(end, |notice| notice.after.min(end));
            let timeout = Timespec::try_from(next.saturating_sub(passed)).ok();
            match poll(descriptors, timeout.as_ref()) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => return Ok(true),
                Err(error) => return Err(error),
            }
            passed = self.passed();
            if passed >= end {
                return Ok(false);
            }
        }
    }
}

/// The clock of std makes no system call, and stops in suspend as the kernel's timers do.
#[expect(clippy::disallowed_methods, reason = "measures a wait, not the age of a credential")]
fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests;
