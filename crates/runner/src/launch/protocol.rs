//! What the broker and a launcher say to each other: an order in arguments, instructions, and reports.

use std::{ffi::OsString, os::unix::process::ExitStatusExt as _, process::ExitStatus, time::Duration};

use credbroker_plugin::Sandbox;

/// The seconds of processor time that each process of a run may use, if the run's timeout is not longer.
const LEAST_PROCESSOR_TIME: u64 = 120;

/// A plugin to start, and how to confine it. Not `Debug`: arguments may be secrets.
#[cfg_attr(test, derive(Debug, PartialEq))]
pub(crate) struct Order {
    pub(super) sandbox: Sandbox,
    /// The most seconds of processor time of each process.
    pub(super) processor_time: u64,
    pub(super) program: OsString,
    pub(super) args: Vec<OsString>,
}

impl Order {
    pub(super) const SUBCOMMAND: &str = "launch";

    /// The arguments of a launcher, before the plugin's path and its arguments.
    pub(crate) fn arguments(sandbox: Sandbox, timeout: Duration) -> [String; 3] {
        let processor_time = timeout.as_secs().max(LEAST_PROCESSOR_TIME);
        [Self::SUBCOMMAND.to_owned(), sandbox.as_str().to_owned(), processor_time.to_string()]
    }

    /// Reads the arguments after the subcommand; `None` if they are not those of a broker.
    pub(super) fn parse(mut args: impl Iterator<Item = OsString>) -> Option<Self> {
        let sandbox = Sandbox::from_name(args.next()?.to_str()?)?;
        let processor_time = args.next()?.to_str()?.parse().ok()?;
        Some(Self { sandbox, processor_time, program: args.next()?, args: args.collect() })
    }
}

/// What the broker says to a launcher, one byte each. The end of the connection means [`End`](Self::End).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Instruction {
    /// Start the plugin: the broker knows the launcher's process id.
    Start = b'S' as isize,
    /// Ask the plugin's process group to end.
    Terminate = b'T' as isize,
    /// Kill the plugin and all of its descendants.
    End = b'E' as isize,
    /// End, and leave the plugin's descendants alone.
    Leave = b'L' as isize,
}

impl Instruction {
    const ALL: [Self; 4] = [Self::Start, Self::Terminate, Self::End, Self::Leave];

    /// The instruction of a byte. Only the broker's own launcher reads it, so an unknown byte is a broken connection.
    pub(super) fn from_byte(byte: u8) -> Self {
        Self::ALL.into_iter().find(|known| *known as u8 == byte).unwrap_or(Self::End)
    }
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum LauncherReport {
    /// The plugin runs, with this process id.
    Started(i32),
    /// The plugin could not be started: the error of the kernel.
    Refused(i32),
    /// The plugin was stopped because it used a terminal.
    Stopped,
    /// The plugin has ended.
    Ended(ExitStatus),
    /// No process of the run is left.
    Gone,
}

impl LauncherReport {
    pub(crate) const LENGTH: usize = 5;

    pub(super) fn bytes(self) -> [u8; Self::LENGTH] {
        let (kind, value) = match self {
            Self::Started(pid) => (b's', pid),
            Self::Refused(errno) => (b'r', errno),
            Self::Stopped => (b't', 0),
            Self::Ended(status) => (b'e', status.into_raw()),
            Self::Gone => (b'g', 0),
        };
        let [a, b, c, d] = value.to_le_bytes();
        [kind, a, b, c, d]
    }

    /// The report in these bytes; `None`: the launcher is not of this program.
    pub(crate) fn from_bytes([kind, a, b, c, d]: [u8; Self::LENGTH]) -> Option<Self> {
        let value = i32::from_le_bytes([a, b, c, d]);
        match kind {
            b's' => Some(Self::Started(value)),
            b'r' => Some(Self::Refused(value)),
            b't' => Some(Self::Stopped),
            b'e' => Some(Self::Ended(ExitStatus::from_raw(value))),
            b'g' => Some(Self::Gone),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt as _;

    use super::*;

    #[test]
    fn a_launcher_reads_what_the_broker_wrote() {
        let odd = OsString::from_vec(b"/\xff".to_vec());
        for (sandbox, timeout, processor_time) in
            [(Sandbox::Strict, 30, 120), (Sandbox::Compatible, 600, 600)]
        {
            let written = Order::arguments(sandbox, Duration::from_secs(timeout)).map(OsString::from);
            let (program, args) = (odd.clone(), vec!["--".into(), odd.clone(), "launch".into()]);
            let all = written.into_iter().chain([program.clone()]).chain(args.clone());
            assert_eq!(Order::parse(all.skip(1)), Some(Order { sandbox, processor_time, program, args }));
        }
    }

    #[test]
    fn anything_else_is_refused() {
        let table: [&[&str]; 5] =
            [&[], &["--help"], &["Strict"], &["Strict", "120"], &["lax", "120", "/bin/true"]];
        for args in table {
            assert_eq!(Order::parse(args.iter().map(OsString::from)), None, "{args:?}");
        }
    }

    #[test]
    fn reports_and_instructions_arrive_as_they_were_sent() {
        for report in [
            LauncherReport::Started(4_194_304),
            LauncherReport::Refused(2),
            LauncherReport::Stopped,
            LauncherReport::Ended(ExitStatus::from_raw(-1)),
            LauncherReport::Gone,
        ] {
            assert_eq!(LauncherReport::from_bytes(report.bytes()), Some(report));
        }
        assert_eq!(LauncherReport::from_bytes(*b"credb"), None);
        for instruction in Instruction::ALL {
            assert_eq!(Instruction::from_byte(instruction as u8), instruction);
        }
        assert_eq!(Instruction::from_byte(0), Instruction::End);
    }
}
