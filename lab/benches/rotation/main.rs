//! How fast a rotation reaches all watches, and what watches cost: `cargo bench -p credbroker-lab --bench rotation`.
//!
//! Prints every figure, beside its limit where it has one, and exits 1 when one is missed. See `lab/README.md`.

#![expect(clippy::disallowed_methods, reason = "measures real processes in real time")]

mod fan_out;
mod memory;
mod reading;
mod stream;
mod subject;
mod switch;
mod watchers;

use std::process::ExitCode;

use anyhow::{Context, Result};
use credbroker_lab::report::Report;

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let directory = tempfile::tempdir().context("a directory for sockets")?;
    let mut report = Report::default();
    reading::measure(&mut report, &directory.path().join("reading")).await?;
    memory::measure(&mut report, &directory.path().join("memory")).await?;
    switch::measure(&mut report, &directory.path().join("switch")).await?;
    for connections in [10, 100] {
        fan_out::measure(&mut report, &directory.path().join(connections.to_string()), connections).await?;
    }
    stream::one(&mut report, &directory.path().join("one")).await?;
    stream::many(&mut report, &directory.path().join("many")).await?;
    Ok(if report.passed() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
