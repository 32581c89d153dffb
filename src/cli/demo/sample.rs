//! The plugin of the demo, which is as slow as a cloud's plugin and prints a token that expires after 20 seconds.

use std::{fs::OpenOptions, io::Write, path::PathBuf, time::Duration};

use anyhow::Context as _;
use prost_types::Timestamp;

use credbroker_observe::clock::{Clock as _, SystemClock};

/// Print an ExecCredential after a pause, and record the run
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct SamplePluginArgs {
    /// File that gets a line for each run
    #[arg(long, value_name = "FILE")]
    runs: PathBuf,
}

/// The time that `aws eks get-token` takes on a fast network.
const PAUSE: Duration = Duration::from_millis(500);
pub(super) const LIFETIME: Duration = Duration::from_secs(20);

pub(in crate::cli) fn run(args: &SamplePluginArgs, out: &mut dyn Write) -> anyhow::Result<u8> {
    let mut runs =
        OpenOptions::new().append(true).create(true).open(&args.runs).context("cannot record this run")?;
    writeln!(runs, "run")?;
    std::thread::sleep(PAUSE);
    let expires = Timestamp::from(SystemClock.now().wall + LIFETIME);
    let token = format!("sample-{:016x}", fastrand::u64(..));
    let document = serde_json::json!({
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {"token": token, "expirationTimestamp": expires.to_string()},
    });
    writeln!(out, "{document}")?;
    Ok(0)
}
