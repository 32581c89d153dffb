//! Minutes under load, with faults: `cargo run --release --example soak -- --minutes 10`.
//!
//! Starts a broker with 50 credentials of 30 seconds, sends 500 requests in a second, keeps 1,000 watches open, and checks
//! every answer. It prints a table, and exits 1 if an answer was wrong, if a request failed although its credential was
//! valid, or if the broker has grown. See `docs/soak.md`.
//!
//! The broker and its plugin are copies of this program under other names.

#![expect(clippy::disallowed_methods, reason = "it starts processes and reads the clock")]
#![expect(clippy::print_stdout, reason = "it prints a table")]

mod broker;
mod leftovers;
mod load;
mod oracle;
mod plugin;
mod process;
mod table;
mod token;
mod watches;

use std::{
    env::args_os,
    path::Path,
    process::ExitCode,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context as _, Result, bail, ensure};
use clap::Parser as _;
use credbroker::{app, cli};
use credbroker_runner::launch;
use tokio_util::sync::CancellationToken;

use broker::Broker;
use oracle::Oracle;
use process::Samples;

/// Freed memory is wiped, as in the broker's own binary.
#[global_allocator]
static ALLOCATOR: zeroizing_alloc::ZeroAlloc<std::alloc::System> =
    zeroizing_alloc::ZeroAlloc(std::alloc::System);

/// Number of credentials.
const KEYS: usize = 50;

fn main() -> ExitCode {
    if let Some(order) = launch::requested(args_os()) {
        return launch::run(order);
    }
    let name = args_os().next().unwrap_or_default();
    match Path::new(&name).file_name().and_then(|name| name.to_str()) {
        Some(broker::PROGRAM) => cli::run(cli::Cli::parse(), &app::environment(), &mut std::io::stdout()),
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

/// The value of `--minutes`.
fn time() -> Result<Duration> {
    let mut args = args_os().skip(1);
    let (flag, minutes) = (args.next(), args.next());
    ensure!(flag.is_some_and(|flag| flag == "--minutes"), "usage: soak --minutes N");
    let minutes: f64 =
        minutes.and_then(|minutes| minutes.to_str()?.parse().ok()).context("--minutes: expected a number")?;
    match Duration::try_from_secs_f64(minutes * 60.0) {
        Ok(time) if time >= Duration::from_secs(6) => Ok(time),
        _ => bail!("--minutes: expected at least 0.1"),
    }
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

/// Milliseconds since 1970.
fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.as_millis().try_into().unwrap_or(u64::MAX)
}
