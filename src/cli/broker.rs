//! Requests to a running broker: where it listens, one connection per command, and failures as a line and an exit code.

use std::{
    ffi::OsString,
    io::{self, Write},
    time::Duration,
};

use anyhow::Context as _;
use credbroker_client::{Client, Error, Socket, SocketError};
use credbroker_exec::{Failure, duration, socket};
use serde_json::Value;

use credbroker_credential::text::escape_json;
use credbroker_plugin::Environment;

/// Where the broker listens.
#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct SocketArg {
    /// Socket of the broker, a path or unix:///absolute/path [env: CREDBROKER_SOCKET] [default:
    /// $XDG_RUNTIME_DIR/credbroker/credbroker.sock if it exists, else /run/credbroker/credbroker.sock]
    #[arg(long = "socket", value_name = "PATH")]
    pub(super) path: Option<OsString>,
    /// The only user whose process is trusted on that socket [env: CREDBROKER_SERVER_UID] [default: this user, root, or
    /// the owner of the socket's directory]
    #[arg(long, value_name = "UID")]
    pub(super) server_uid: Option<OsString>,
}

impl SocketArg {
    /// The socket, from the flags and from `environment`.
    pub(super) fn locate(&self, environment: &Environment) -> Result<Socket, SocketError> {
        let is_root = || rustix::process::geteuid().is_root();
        socket(self.path.as_deref(), self.server_uid.as_deref(), &(&environment.0).into(), is_root)
    }
}

/// What `Client::connect` allows a peer that sends nothing; then there is no broker. A deadline of the same length would
/// make it a matter of luck which of the two errors is reported.
const CONNECT: Duration = Duration::from_secs(5);

/// How long a request may take.
#[derive(Debug, clap::Args)]
pub(super) struct TimeoutArg {
    /// Longest time to wait for each answer of the broker, such as 500ms, 10s, 2m, or a number of seconds
    #[arg(long = "timeout", value_name = "TIME", default_value = "5s", value_parser = timeout)]
    pub(super) limit: Duration,
}

/// The default of the command line.
impl Default for TimeoutArg {
    fn default() -> Self {
        Self { limit: Duration::from_secs(5) }
    }
}

/// The output of a command that lists something.
#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
pub(super) enum OutputFormat {
    /// A table for people
    Table,
    /// JSON for programs
    Json,
}

/// Parses the value of `--timeout`, in the syntax of `credbroker-exec`.
pub(super) fn timeout(text: &str) -> Result<Duration, &'static str> {
    duration(text).ok_or("expected a time such as 500ms, 10s or 2m, more than 0 and at most 24h")
}

/// Connects once and runs `request`; each answer may take `limit`. The inner error is the broker's answer or its
/// absence, the outer one a defect of this process.
pub(super) fn ask<T>(
    socket_arg: &SocketArg,
    limit: Duration,
    environment: &Environment,
    request: impl AsyncFnOnce(Client) -> Result<T, Error>,
) -> anyhow::Result<Result<T, Failure>> {
    let socket = match socket_arg.locate(environment) {
        Ok(socket) => socket,
        Err(error) => return Ok(Err(error.into())),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let answer = runtime.context("cannot start the async runtime")?.block_on(async {
        let patience = if limit < CONNECT { limit } else { Duration::MAX };
        let connecting = tokio::time::timeout(patience, Client::connect(&socket)).await;
        request(connecting.unwrap_or(Err(Error::Timeout { limit }))?.timeout(limit)).await
    });
    if answer.is_ok() {
        note_ignored(&socket, &mut io::stderr())?;
    }
    Ok(answer.map_err(Failure::from))
}

/// Says that `XDG_RUNTIME_DIR` was ignored. Errors say it themselves.
pub(super) fn note_ignored(socket: &Socket, err: &mut dyn Write) -> io::Result<()> {
    socket.ignored_runtime_directory().map_or(Ok(()), |ignored| writeln!(err, "credbroker: {ignored}"))
}

/// Prints a document for programs. It has no character that a terminal obeys or hides.
pub(super) fn write_json(document: &Value, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{}", escape_json(&format!("{document:#}")))
}

/// Prints an answer on `out` with `print`, or a failure on stderr; returns the exit code.
pub(super) fn finish<T>(
    answer: Result<T, Failure>,
    out: &mut dyn Write,
    print: impl FnOnce(T, &mut dyn Write) -> io::Result<()>,
) -> anyhow::Result<u8> {
    match answer {
        Ok(answer) => {
            print(answer, out)?;
            Ok(0)
        }
        Err(failure) => Ok(fail(&failure, &mut io::stderr())?),
    }
}

/// Prints why there is no answer and what to do; returns the exit code, which is that of `credbroker-exec`.
pub(super) fn fail(failure: &Failure, err: &mut dyn Write) -> io::Result<u8> {
    writeln!(err, "credbroker: {}", failure.line(None))?;
    Ok(failure.exit_code())
}
