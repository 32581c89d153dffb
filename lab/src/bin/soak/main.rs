//! Minutes under load, with faults: `cargo run --release -p credbroker-lab -- --duration 10m`.
//!
//! Starts a broker with 50 credentials of 30 seconds, sends 500 requests in a second, keeps 1,000 watches open, and checks
//! every answer. It prints a table, and exits 1 if an answer was wrong, if a request failed although its credential was
//! valid, or if the broker has grown. See `docs/soak.md`.
//!
//! The plugin is a copy of this program under another name.

#![expect(clippy::disallowed_methods, reason = "it starts processes and reads the clock")]
#![expect(clippy::print_stdout, reason = "it prints a table")]

mod broker;
mod leftovers;
mod load;
mod plugin;
mod process;
mod table;
mod watches;

use std::{env::args_os, ops::RangeInclusive, path::Path, process::ExitCode, sync::Arc, time::Duration};

use anyhow::{Context as _, Result, ensure};
use credbroker_lab::oracle::Oracle;
use credbroker_units::duration::parse_within;
use tokio_util::sync::CancellationToken;

use crate::{broker::Broker, process::Samples};

fn main() -> ExitCode {
    let name = args_os().next().unwrap_or_default();
    match Path::new(&name).file_name().and_then(|name| name.to_str()) {
        Some(plugin::PROGRAM) => plugin::run(args_os().skip(1)),
        _ => match soak() {
            Ok(true) => ExitCode::SUCCESS,
            Ok(false) => ExitCode::FAILURE,
            Err(error) => {
                println!("soak: {error:#}");
                ExitCode::FAILURE
            }
        },
    }
}

const BOUNDS: RangeInclusive<Duration> = Duration::from_secs(6)..=Duration::from_secs(7 * 24 * 3600);

/// The value of `--duration`.
fn time() -> Result<Duration> {
    let mut args = args_os().skip(1);
    let (flag, value) = (args.next(), args.next());
    ensure!(flag.is_some_and(|flag| flag == "--duration"), "usage: soak --duration DURATION");
    let text = value.as_ref().and_then(|value| value.to_str()).unwrap_or_default();
    parse_within(text, BOUNDS).context("--duration: expected a duration such as 90s or 10m")
}

#[tokio::main]
async fn soak() -> Result<bool> {
    let time = time()?;
    let oracle = Arc::new(Oracle::new(format!("{:016x}", fastrand::u64(..))));
    let mut broker = Broker::start(oracle.nonce())?;
    let stop = CancellationToken::new();
    let load = tokio::spawn(load::run(broker.socket(), Arc::clone(&oracle), stop.clone()));
    let watches = tokio::spawn(watches::run(broker.socket(), Arc::clone(&oracle), stop.clone()));
    let reloads = tokio::spawn(broker.config().rewrite(broker.socket(), Arc::clone(&oracle), stop.clone()));
    let samples = Samples::of(broker.pid(), time, || broker.check()).await?;
    stop.cancel();
    let load = load.await??;
    let watches = watches.await??;
    let reloads = reloads.await??;
    let rest = broker.stop(oracle.nonce())?;
    Ok(table::print(&table::Figures { load, watches, reloads, samples, rest, oracle: &oracle }))
}
