//! What a hit costs, and what ten thousand keys cost: `cargo bench -p credbroker-lab --bench scale [-- SECTION...]`.
//!
//! Prints every figure with its limit and exits 1 when one is missed. See `lab/README.md`.

#![expect(clippy::disallowed_methods, reason = "measures real processes in real time")]

mod attacks;
mod callers;
mod credential;
mod crowd;
mod floods;
mod hits;
mod idle;
mod keys;
mod many;
mod memory;
mod subject;

use std::{env::args, path::PathBuf, process::ExitCode};

use anyhow::{Context, Result};
use credbroker_lab::{echo, report::Report};

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let args: Vec<_> = args().skip(1).filter(|arg| arg != "--bench").collect();
    if let [command, socket, answer] = args.as_slice()
        && command == echo::COMMAND
    {
        let (socket, answer) = (PathBuf::from(socket), PathBuf::from(answer));
        // It has a separate runtime.
        std::thread::spawn(move || echo::serve(&socket, &answer)).join().ok().context("it panicked")??;
        return Ok(ExitCode::SUCCESS);
    }
    let wanted = |name: &str| args.is_empty() || args.iter().any(|arg| arg == name);
    let directory = tempfile::tempdir().context("a directory for sockets")?;
    let directory = directory.path();
    let mut report = Report::default();
    if wanted("hits") {
        hits::measure(&mut report, &directory.join("hits")).await?;
    }
    if wanted("idle") {
        idle::measure(&mut report, &directory.join("idle")).await?;
    }
    if wanted("memory") {
        memory::measure(&mut report, &directory.join("memory")).await?;
    }
    if wanted("crowd") {
        crowd::measure(&mut report, &directory.join("crowd")).await?;
    }
    if wanted("many") {
        many::measure(&mut report, &directory.join("many")).await?;
    }
    if wanted("attacks") {
        attacks::measure(&mut report, &directory.join("attacks")).await?;
    }
    Ok(if report.passed() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
