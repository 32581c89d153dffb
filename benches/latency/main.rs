//! How fast credbroker is, side by side with what it is measured against: `cargo bench --bench latency`.
//!
//! Prints every figure with its limit and exits 1 when one is missed. See `benches/README.md`.

#![expect(clippy::disallowed_methods, reason = "measures real processes in real time")]
#![expect(clippy::print_stdout, reason = "its output is its purpose")]

mod artefacts;
#[path = "../common/broker.rs"]
mod broker;
mod cold;
mod daemon;
mod echo;
#[path = "../common/report.rs"]
mod report;
mod warm;

use std::{env::args, path::PathBuf, process::ExitCode};

use anyhow::{Context, Result};
use daemon::Subject;
use report::Report;

fn main() -> Result<ExitCode> {
    let args: Vec<_> = args().skip(1).collect();
    if let [command, socket, answer] = args.as_slice()
        && command == echo::COMMAND
    {
        echo::serve(&PathBuf::from(socket), &PathBuf::from(answer))?;
        return Ok(ExitCode::SUCCESS);
    }
    let subject = if args.iter().any(|arg| arg == "--stand-in") { Subject::StandIn } else { Subject::Daemon };
    let directory = tempfile::tempdir().context("a directory for sockets")?;
    let shim = artefacts::static_shim(directory.path())?;

    let mut report = Report::default();
    cold::measure(&mut report, &directory.path().join("cold"), &shim, subject)?;
    warm::measure(&mut report, &directory.path().join("warm"), &shim, subject)?;
    Ok(if report.passed() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
