//! Asking a running broker: where it is, one connection for one command, and its no as a line and an exit code.

use std::{
    ffi::OsString,
    io::{self, Write},
    time::Duration,
};

use anyhow::Context as _;
use credbroker_client::{Client, Error};
use credbroker_exec::{Failure, socket};
use tokio::time::timeout;

use crate::plugin::Environment;

/// Where the broker is.
#[derive(Debug, Default, clap::Args)]
pub(super) struct Place {
    /// The broker's socket [env: CREDBROKER_SOCKET] [default: the user's broker if its socket exists, else
    /// /run/credbroker/credbroker.sock]
    #[arg(long, value_name = "PATH")]
    pub(super) socket: Option<OsString>,
}

/// How long to wait for it.
#[derive(Debug, clap::Args)]
pub(super) struct Patience {
    /// Give up when the broker does not answer a request within so many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    timeout: u64,
}

impl Patience {
    pub(super) fn limit(&self) -> Duration {
        Duration::from_secs(self.timeout)
    }
}

/// As the command line has it.
impl Default for Patience {
    fn default() -> Self {
        Self { timeout: 5 }
    }
}

/// How to print what it says.
#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
pub(super) enum Output {
    /// For people
    Table,
    /// For programs
    Json,
}

/// One connection, and what is asked over it, each request within `limit`. The inner error is the broker's answer or
/// its absence, the outer one a fault of ours.
pub(super) fn ask<T>(
    place: &Place,
    limit: Duration,
    environment: &Environment,
    question: impl AsyncFnOnce(Client) -> Result<T, Error>,
) -> anyhow::Result<Result<T, Failure>> {
    let is_root = || rustix::process::geteuid().is_root();
    let socket = match socket(place.socket.as_deref(), &environment.0, is_root) {
        Ok(socket) => socket,
        Err(error) => return Ok(Err(error.into())),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("no runtime")?;
    let answer = runtime.block_on(async {
        let connecting = timeout(limit, Client::connect(&socket)).await;
        question(connecting.unwrap_or(Err(Error::Timeout { limit }))?.timeout(limit)).await
    });
    Ok(answer.map_err(Failure::from))
}

/// Says why there is no answer, with its remedy; the exit code is the shim's.
pub(super) fn refused(failure: &Failure, err: &mut dyn Write) -> io::Result<u8> {
    writeln!(err, "credbroker: {}", failure.line(None))?;
    Ok(failure.exit_code())
}
