//! The plugin: prints a token of 30 seconds, and fails in one of a hundred runs.

use std::{
    ffi::OsString,
    fs::OpenOptions,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    io::Write as _,
    path::{Path, PathBuf},
    process::ExitCode,
    thread::sleep,
    time::Duration,
};

use anyhow::{Context as _, Result};
use credbroker_lab::token::{Token, now};
use prost_types::Timestamp;
use rustix::process::{Signal, getpid, kill_process};
use serde_json::json;

/// File name of the plugin's copy of this program.
pub(crate) const PROGRAM: &str = "soak-plugin";
/// Lifetime of a credential.
const LIFETIME: u64 = 30_000;
/// One of so many runs fails.
const FAULTS: u64 = 100;
/// Longer than the provider's `timeout`.
const SILENCE: Duration = Duration::from_secs(60);

/// The arguments of the plugin in the broker's configuration.
pub(crate) fn arguments(directory: &Path, provider: &str, nonce: &str) -> [String; 3] {
    [directory.display().to_string(), provider.to_owned(), nonce.to_owned()]
}

pub(crate) fn run(args: impl Iterator<Item = OsString>) -> ExitCode {
    match print(args) {
        Ok(code) => code,
        Err(error) => {
            let _closed = writeln!(std::io::stderr(), "soak-plugin: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn print(args: impl Iterator<Item = OsString>) -> Result<ExitCode> {
    let started = now();
    let mut args = args.map(|arg| arg.to_string_lossy().into_owned());
    let mut next = || args.next().context("an argument is missing");
    let (directory, provider, nonce) = (PathBuf::from(next()?), next()?, next()?);
    let profile = std::env::var("AWS_PROFILE").context("AWS_PROFILE")?;
    let run = record(&directory.join(format!("runs-{profile}")))?;
    let mut hasher = DefaultHasher::new();
    (&nonce, &profile, run).hash(&mut hasher);
    let chance = hasher.finish();
    let fault = chance.is_multiple_of(FAULTS).then_some(chance / FAULTS % 6);
    if fault.is_some() {
        record(&directory.join("faults"))?;
    }
    // An expiry has whole seconds.
    let mut expires = (started + LIFETIME) / 1000 * 1000;
    match fault {
        None => {}
        Some(0) => expires = started.saturating_sub(600_000) / 1000 * 1000,
        Some(1) => {
            println!("{{\"kind\": \"ExecCredential\", ");
            return Ok(ExitCode::SUCCESS);
        }
        Some(2) => {
            kill_process(getpid(), Signal::KILL)?;
        }
        Some(3) => sleep(SILENCE),
        Some(4) => anyhow::bail!("429 Too Many Requests, Retry-After: 2"),
        Some(_) => return Ok(ExitCode::from(3)),
    }
    let token = Token { nonce, provider, profile, run, started, expires };
    let seconds = i64::try_from(expires / 1000)?;
    let document = json!({
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {
            "token": token.to_string(),
            "expirationTimestamp": Timestamp { seconds, nanos: 0 }.to_string(),
        },
    });
    println!("{document}");
    Ok(ExitCode::SUCCESS)
}

/// Adds a byte to `file` and returns its size. A key has one run at a time, so this numbers its runs.
fn record(file: &Path) -> Result<u64> {
    let mut file = OpenOptions::new().append(true).create(true).open(file)?;
    file.write_all(b".")?;
    Ok(file.metadata()?.len())
}
