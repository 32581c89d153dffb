//! Asking a running broker: where it is, one connection for one command, and its no as a line and an exit code.

use std::{
    ffi::OsString,
    io::{self, Write},
};

use anyhow::Context as _;
use credbroker_client::{Client, Error};
use credbroker_exec::{Failure, socket};

use crate::plugin::Environment;

/// Where the broker is.
#[derive(Debug, Default, clap::Args)]
pub(super) struct Place {
    /// The broker's socket [env: CREDBROKER_SOCKET] [default: the user's broker if its socket exists, else
    /// /run/credbroker/credbroker.sock]
    #[arg(long, value_name = "PATH")]
    pub(super) socket: Option<OsString>,
}

/// How to print what it says.
#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
pub(super) enum Output {
    /// For people
    Table,
    /// For programs
    Json,
}

/// One connection, and what is asked over it. The inner error is the broker's answer or its absence, the outer one a
/// fault of ours.
pub(super) fn ask<T>(
    place: &Place,
    environment: &Environment,
    question: impl AsyncFnOnce(Client) -> Result<T, Error>,
) -> anyhow::Result<Result<T, Failure>> {
    let is_root = || rustix::process::geteuid().is_root();
    let socket = match socket(place.socket.as_deref(), &environment.0, is_root) {
        Ok(socket) => socket,
        Err(error) => return Ok(Err(error.into())),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("no runtime")?;
    let answer = runtime.block_on(async { question(Client::connect(&socket).await?).await });
    Ok(answer.map_err(Failure::from))
}

/// Says why there is no answer, with its remedy; the exit code is the shim's.
pub(super) fn refused(failure: &Failure, err: &mut dyn Write) -> io::Result<u8> {
    writeln!(err, "credbroker: {}", failure.line(None))?;
    Ok(failure.exit_code())
}
