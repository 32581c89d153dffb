//! Starts a plugin and watches it, its descendants, and the broker.

use std::{
    fs::OpenOptions,
    io::{self, Read as _},
    os::{
        fd::{AsFd as _, BorrowedFd},
        unix::process::{CommandExt as _, ExitStatusExt as _},
    },
    process::{Command, ExitStatus, Stdio},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    process::{Pid, Signal, WaitOptions, WaitStatus, getpid, kill_process_group, wait},
    stdio::{dup2_stderr, dup2_stdout},
};

use super::{
    confine::{Confined, confine},
    protocol::{Instruction, LauncherReport, Order},
};
use crate::linux;

/// The first and the longest pause before a file that is being written is tried again: about a second in all.
const BUSY: (i64, i64) = (4, 512);
/// The pause between two attempts to kill what is left, and their number: five seconds in all.
const KILL_PAUSE: i64 = 10;
const KILL_ATTEMPTS: usize = 500;

/// Runs the plugin of `order` for the broker at the other end of standard input.
pub(super) fn run(order: &Order) -> io::Result<()> {
    let stdin = io::stdin();
    let broker = Broker(stdin.as_fd());
    let started = confine(order).and_then(|confined| Ok(start(order, &broker)?.zip(Some(confined))));
    let (leader, confined) = match started {
        Ok(Some(started)) => started,
        Ok(None) => return Ok(()),
        Err(error) => {
            let errno = error.raw_os_error().unwrap_or(Errno::IO.raw_os_error());
            broker.report(LauncherReport::Refused(errno));
            return Ok(());
        }
    };
    broker.report(LauncherReport::Started(leader.as_raw_nonzero().get()));
    release_output()?;
    Supervised { broker, confined, leader, has_ended: false }.watch()
}

/// Starts the plugin when the broker says so; `None`: the broker is gone.
fn start(order: &Order, broker: &Broker<'_>) -> io::Result<Option<Pid>> {
    if broker.next() != Instruction::Start {
        return Ok(None);
    }
    #[expect(clippy::disallowed_methods, reason = "the place that starts plugins")]
    let mut command = Command::new(&order.program);
    command.args(&order.args).process_group(0).stdin(Stdio::null());
    let (mut pause, longest) = BUSY;
    loop {
        match command.spawn() {
            Err(error) if error.kind() == io::ErrorKind::ExecutableFileBusy && pause <= longest => {
                if broker.speaks_within(pause) {
                    return Ok(None); // nothing but the end is possible before the start
                }
                pause *= 2;
            }
            // It is reaped with all other descendants.
            started => return Ok(Some(Pid::from_child(&started?))),
        }
    }
}

/// Closes the launcher's copies of the plugin's output, whose end the broker waits for.
fn release_output() -> io::Result<()> {
    let nothing = OpenOptions::new().read(true).write(true).open("/dev/null")?;
    dup2_stdout(&nothing)?;
    Ok(dup2_stderr(&nothing)?)
}

struct Broker<'a>(BorrowedFd<'a>);

impl Broker<'_> {
    /// If the broker is gone, the next read shows it.
    fn report(&self, report: LauncherReport) {
        let _unheard = rustix::io::write(self.0, &report.bytes());
    }

    fn next(&self) -> Instruction {
        let mut byte = [0];
        loop {
            match rustix::io::read(self.0, &mut byte) {
                Err(Errno::INTR) => {}
                Ok(1) => return Instruction::from_byte(byte[0]),
                Ok(_) | Err(_) => return Instruction::End,
            }
        }
    }

    /// Whether an instruction, or the end of the connection, arrives within so many milliseconds.
    fn speaks_within(&self, milliseconds: i64) -> bool {
        let limit = Timespec { tv_sec: 0, tv_nsec: milliseconds * 1_000_000 };
        matches!(poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&limit)), Ok(1..))
    }
}

/// A plugin that runs, and its descendants.
struct Supervised<'a> {
    broker: Broker<'a>,
    confined: Confined,
    /// Leads the plugin's process group. Until it is reaped, its id is not used again.
    leader: Pid,
    has_ended: bool,
}

impl Supervised<'_> {
    fn watch(&mut self) -> io::Result<()> {
        while self.reap() {
            let mut sources = [
                PollFd::new(&self.broker.0, PollFlags::IN),
                PollFd::new(&self.confined.children, PollFlags::IN),
            ];
            match poll(&mut sources, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            let [broker, children] = sources.map(|source| !source.revents().is_empty());
            if children {
                self.forget_wake_ups();
            }
            let instruction = broker.then(|| self.broker.next());
            match instruction {
                None | Some(Instruction::Start) => continue,
                Some(Instruction::Terminate) => {
                    self.signal(Signal::TERM);
                    continue;
                }
                Some(Instruction::End) => self.end(),
                Some(Instruction::Leave) => self.leave(),
            }
            return Ok(());
        }
        self.broker.report(LauncherReport::Gone);
        Ok(())
    }

    /// Reaps all descendants that have ended. Returns whether any is left.
    fn reap(&mut self) -> bool {
        loop {
            match wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
                Ok(Some((pid, status))) if pid == self.leader => self.has_changed(status),
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) => return true,
                Err(_) => return false, // no child is left
            }
        }
    }

    fn has_changed(&mut self, status: WaitStatus) {
        let terminal = [Signal::TTIN, Signal::TTOU].map(|signal| Some(signal.as_raw()));
        if !status.stopped() {
            self.has_ended = true;
            self.broker.report(LauncherReport::Ended(ExitStatus::from_raw(status.as_raw())));
        } else if terminal.contains(&status.stopping_signal()) {
            self.broker.report(LauncherReport::Stopped);
        }
    }

    fn signal(&self, signal: Signal) {
        if !self.has_ended {
            // The group exists, because its leader is not reaped.
            let _signalled = kill_process_group(self.leader, signal);
        }
    }

    /// Kills all descendants. A process in uninterruptible sleep is given up after a while.
    fn end(&mut self) {
        self.signal(Signal::KILL);
        for attempt in 0..KILL_ATTEMPTS {
            self.forget_wake_ups();
            if !self.reap() {
                self.broker.report(LauncherReport::Gone);
                return;
            }
            if attempt > 0 || self.has_ended {
                // The group was not all.
                linux::kill_descendants(getpid());
            }
            let limit = Timespec { tv_sec: 0, tv_nsec: KILL_PAUSE * 1_000_000 };
            let _woken = poll(&mut [PollFd::new(&self.confined.children, PollFlags::IN)], Some(&limit));
        }
    }

    /// Leaves the descendants to the broker, or to the first process.
    fn leave(&self) {
        for pid in linux::descendants(getpid()) {
            self.confined.lift(pid);
        }
        self.broker.report(LauncherReport::Gone);
    }

    fn forget_wake_ups(&mut self) {
        let mut bytes = [0; 64];
        while matches!(self.confined.children.read(&mut bytes), Ok(1..)) {}
    }
}
