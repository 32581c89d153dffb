//! How fast credbroker is, side by side with what it is measured against: `cargo bench -p credbroker-lab --bench latency`.
//!
//! Prints every figure with its limit and exits 1 when one is missed. See `lab/README.md`.

#![expect(clippy::disallowed_methods, reason = "measures real processes in real time")]

mod cold;
mod first;
mod kubectl;
mod launch;
mod shim;
mod timer;
mod warm;

use std::{env::args, path::PathBuf, process::ExitCode};

use anyhow::{Context, Result};
use credbroker_lab::{daemon::Subject, echo, programs, report::Report};

fn main() -> Result<ExitCode> {
    let args: Vec<_> = args().skip(1).collect();
    if let [command, socket, answer] = args.as_slice()
        && command == echo::COMMAND
    {
        echo::serve(&PathBuf::from(socket), &PathBuf::from(answer))?;
        return Ok(ExitCode::SUCCESS);
    }
    let (mut report, directory) =
        (Report::default(), tempfile::tempdir().context("a directory for sockets")?);
    let directory = |name| directory.path().join(name);
    let wanted = |name: &str| {
        let mut sections = args.iter().filter(|arg| !arg.starts_with('-')).peekable();
        sections.peek().is_none() || sections.any(|section| section == name)
    };
    let is_stand_in = args.iter().any(|arg| arg == "--stand-in");
    let subject = if is_stand_in { Subject::StandIn } else { Subject::Daemon };
    let shim = programs::static_shim(&directory(""))?;
    if wanted("cold") {
        cold::measure(&mut report, &directory("cold"), &shim, subject)?;
    }
    if wanted("warm") {
        warm::measure(&mut report, &directory("warm"), &shim, subject)?;
    }
    if wanted("first") {
        first::measure(&mut report, &directory("first"), &shim)?;
    }
    if wanted("launch") {
        launch::measure(&mut report, &directory("launch"))?;
    }
    Ok(if report.passed() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
