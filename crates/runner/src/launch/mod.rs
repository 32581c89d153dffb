//! The launcher: the process between the broker and a plugin.
//!
//! The broker starts itself as `credbroker launch` for each run. The launcher confines itself, and so the plugin that it
//! starts; it adopts every process that the plugin leaves behind, and kills all of them when the broker says so or is gone.
//! It talks to the broker over its standard input, which is a socket: one byte for each `Instruction`, five for each
//! `LauncherReport`. The plugin has the launcher's output, arguments, environment and working directory.
//!
//! It runs before anything else of this program is set up, because each plugin run waits for it.

mod confine;
mod protocol;
mod supervise;

use std::{ffi::OsString, process::ExitCode};

pub use protocol::Order;
pub(crate) use protocol::{Instruction, LauncherReport};

/// Why the launcher does nothing: it was not started by a broker.
const MISUSED: u8 = 2;

/// What a broker asks the launcher for in the arguments of this process; `None`: this process is not a launcher.
pub fn requested(mut args: impl Iterator<Item = OsString>) -> Option<Result<Order, MisusedError>> {
    let _program = args.next();
    (args.next()? == Order::SUBCOMMAND).then(|| Order::parse(args).ok_or(MisusedError))
}

/// The arguments are not those of a broker.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("`credbroker launch` is for the broker, which starts plugins with it")]
pub struct MisusedError;

/// Runs the launcher until the plugin and all of its descendants have ended, or are left alone.
pub fn run(order: Result<Order, MisusedError>) -> ExitCode {
    let ended = order.map_err(|error| error.to_string()).and_then(|order| {
        supervise::run(&order).map_err(|error| format!("cannot supervise a plugin: {error}"))
    });
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            use std::io::Write as _;
            // If stderr is closed, there is no other place for the error.
            let _unheard = writeln!(std::io::stderr(), "credbroker: {problem}");
            ExitCode::from(MISUSED)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requested_by(args: &[&str]) -> Option<Result<Order, MisusedError>> {
        requested(args.iter().map(OsString::from))
    }

    #[test]
    fn only_the_first_argument_makes_a_launcher() {
        assert_eq!(requested_by(&[]), None);
        assert_eq!(requested_by(&["credbroker"]), None);
        assert_eq!(requested_by(&["launch", "serve"]), None);
        assert_eq!(requested_by(&["credbroker", "serve", "launch"]), None);
        assert_eq!(requested_by(&["credbroker", "launch"]), Some(Err(MisusedError)));
        assert_eq!(requested_by(&["credbroker", "launch", "--help"]), Some(Err(MisusedError)));
    }
}
