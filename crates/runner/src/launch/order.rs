//! What the broker asks a launcher for, as arguments.

use std::{ffi::OsString, fmt, time::Duration};

use credbroker_plugin::Sandbox;

/// The seconds of processor time that each process of a run may use, if the run's timeout is not longer.
const LEAST_PROCESSOR_TIME: u64 = 120;

/// A plugin to start, and how to confine it.
#[derive(Clone, Eq, PartialEq)]
pub struct Order {
    pub(super) sandbox: Sandbox,
    /// The most seconds of processor time of each process.
    pub(super) processor_time: u64,
    pub(super) program: OsString,
    pub(super) args: Vec<OsString>,
}

impl Order {
    pub(super) const SUBCOMMAND: &str = "launch";

    /// The arguments of a launcher, before the plugin's path and its arguments.
    pub fn arguments(sandbox: Sandbox, timeout: Duration) -> [String; 3] {
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

/// Shows no arguments: they may be secrets.
impl fmt::Debug for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Order").field("program", &self.program).finish_non_exhaustive()
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
            [&[], &["--help"], &["strict"], &["strict", "120"], &["lax", "120", "/bin/true"]];
        for args in table {
            assert_eq!(Order::parse(args.iter().map(OsString::from)), None, "{args:?}");
        }
    }
}
