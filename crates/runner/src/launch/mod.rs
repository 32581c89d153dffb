//! The launcher: the process between the broker and a plugin.
//!
//! The broker starts itself as `credbroker launch` for each run. The launcher confines itself, and so the plugin that it
//! starts; it adopts every process that the plugin leaves behind, and kills all of them when the broker says so or is gone.
//! It talks to the broker over its standard input, which is a socket: one byte for each `Instruction`, five for each
//! `LauncherReport`. The plugin has the launcher's output, arguments, environment and working directory.

mod confine;
mod protocol;
mod supervise;

use std::{ffi::OsString, process::ExitCode};

pub(crate) use protocol::{Instruction, LauncherReport, Order};

const MISUSED: u8 = 2;

/// Runs the launcher that the arguments of this process ask for, until the plugin and all of its descendants have ended, or
/// are left alone; `None`: this process is not a launcher.
pub fn requested(mut args: impl Iterator<Item = OsString>) -> Option<ExitCode> {
    use std::io::Write as _;
    let _program = args.next();
    if args.next()? != Order::SUBCOMMAND {
        return None;
    }
    let problem = match Order::parse(args).map(|order| supervise::run(&order)) {
        Some(Ok(())) => return Some(ExitCode::SUCCESS),
        Some(Err(error)) => format!("cannot supervise a plugin: {error}"),
        None => "`credbroker launch` is for the broker, which starts plugins with it".to_owned(),
    };
    // If stderr is closed, there is no other place for the error.
    let _unheard = writeln!(std::io::stderr(), "credbroker: {problem}");
    Some(ExitCode::from(MISUSED))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_argument_makes_a_launcher() {
        let requested = |args: &[&str]| requested(args.iter().map(OsString::from));
        for args in [&[][..], &["credbroker"], &["launch", "serve"], &["credbroker", "serve", "launch"]] {
            assert_eq!(requested(args), None, "{args:?}");
        }
        for args in [&["credbroker", "launch"][..], &["credbroker", "launch", "--help"]] {
            assert_eq!(requested(args), Some(ExitCode::from(MISUSED)), "{args:?}");
        }
    }
}
