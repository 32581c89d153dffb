//! The plugin of the demo: as slow as a cloud's, with a token that lives twenty seconds.

use std::{fs::OpenOptions, io::Write, path::PathBuf, time::Duration};

use anyhow::Context as _;
use prost_types::Timestamp;

use crate::clock::{Clock as _, SystemClock};

/// Print an ExecCredential after a pause, and count the runs
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Args {
    /// File that gets one line a run
    #[arg(long, value_name = "FILE")]
    runs: PathBuf,
}

/// What `aws eks get-token` takes on a good day.
const PAUSE: Duration = Duration::from_millis(500);
pub(super) const LIFETIME: Duration = Duration::from_secs(20);

pub(in crate::cli) fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<u8> {
    let mut runs =
        OpenOptions::new().append(true).create(true).open(&args.runs).context("cannot count this run")?;
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
