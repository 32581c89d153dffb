//! Requests to a running broker: where it listens, what a command selects there, one connection per command, and failures
//! as a line and an exit code.

use std::{
    ffi::OsString,
    fmt,
    io::{self, Write},
    time::Duration,
};

use anyhow::Context as _;
use credbroker_client::{
    Client, ClusterProfileRef, Error, Failure as Reported, HubState, Reason, Socket, SocketError,
    admin::Selector,
};
use credbroker_exec::{Failure, Source, duration, socket};
use serde_json::{Value, json};

use super::screen::rfc3339;
use credbroker_credential::text::escape_json;
use credbroker_plugin::Environment;

/// Exit code of a bad configuration (`EX_CONFIG`).
pub(super) const EX_CONFIG: u8 = 78;

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

/// The broker that a command asks.
#[derive(Debug, Default, clap::Args)]
pub(super) struct BrokerArgs {
    #[command(flatten)]
    pub(super) socket: SocketArg,
    #[command(flatten)]
    pub(super) timeout: TimeoutArg,
}

impl BrokerArgs {
    /// As [`ask`], for a command that ends with the failure of its request.
    pub(super) fn ask<T>(
        &self,
        environment: &Environment,
        request: impl AsyncFnOnce(Client) -> Result<T, Error>,
    ) -> anyhow::Result<T> {
        Ok(ask(&self.socket, self.timeout.limit, environment, request)??)
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

/// Prints why a command has failed and what to do; returns the exit code. The failure of a request has the line and the
/// exit code of `credbroker-exec`.
pub(super) fn fail(error: &anyhow::Error, err: &mut dyn Write) -> u8 {
    let (line, code) = match error.downcast_ref::<Failure>() {
        Some(failure) => (failure.line(None), failure.exit_code()),
        None => (format!("{error:#}"), 1),
    };
    // If it cannot be written, there is no other place for the error.
    let _ignored = writeln!(err, "credbroker: {line}");
    code
}

/// A failure that the broker reports, as every command prints it in JSON.
pub(super) fn failure_json(failure: &Reported) -> Value {
    json!({"reason": reason(failure), "message": failure.message})
}

/// The name of a failure's reason.
pub(super) fn reason(failure: &Reported) -> &'static str {
    failure.reason.map_or("ERROR_REASON_UNSPECIFIED", Reason::name)
}

/// The hub, as every command prints it in JSON.
pub(super) fn hub_json(hub: &HubState) -> Value {
    json!({
        "synced": hub.synced,
        "failure": hub.failure.as_ref().map(failure_json),
        "sinceTime": hub.since.map(rfc3339),
    })
}

/// What a command selects.
#[derive(Debug, clap::Args)]
pub(super) struct SelectionArgs {
    #[command(flatten)]
    one: OneArg,
    #[command(flatten)]
    definition: DefinitionArg,
}

/// Exactly one of these arguments.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct OneArg {
    /// Select the credentials of this provider
    #[arg(value_name = "NAME")]
    provider: Option<String>,
    /// Select the credentials for this cluster, as `credbroker clusters` lists it
    #[arg(long, value_name = "NAMESPACE/NAME")]
    cluster_profile: Option<ClusterProfileRef>,
    /// Select the credential with this key, as `credbroker status` prints it
    #[arg(long)]
    key: Option<String>,
    /// Select all credentials
    #[arg(long)]
    all: bool,
}

/// One definition of a provider that several kubeconfigs define.
#[derive(Debug, clap::Args)]
pub(super) struct DefinitionArg {
    /// Digest of the kubeconfig that defines the provider, if several define the name: `credbroker status -o json` lists
    /// them
    #[arg(long, value_name = "DIGEST", requires = "provider")]
    pub(super) definition: Option<String>,
}

impl DefinitionArg {
    /// Selects the credentials of `provider` with this definition; without one those of all its definitions.
    pub(super) fn selector(&self, provider: &str) -> Selector {
        let provider = provider.to_owned();
        match &self.definition {
            Some(definition) => Selector::Definition { provider, definition: definition.clone() },
            None => Selector::Provider(provider),
        }
    }
}

impl SelectionArgs {
    pub(super) fn selector(&self) -> Selector {
        match (&self.one.provider, &self.one.cluster_profile, &self.one.key) {
            (Some(provider), _, _) => self.definition.selector(provider),
            (None, Some(profile), _) => Selector::ClusterProfile(profile.clone()),
            (None, None, Some(key)) => Selector::Key(key.clone()),
            (None, None, None) => Selector::All,
        }
    }
}

impl SelectionArgs {
    /// What a request names to get such a credential. `None`: nothing does.
    pub(super) fn source(&self) -> Option<Source> {
        let profile = self.one.cluster_profile.clone().map(Source::ClusterProfile);
        let definition = self.definition.definition.clone();
        profile.or_else(|| Some(Source::Provider { name: self.one.provider.clone()?, definition }))
    }
}

impl fmt::Display for SelectionArgs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.one.provider, &self.one.cluster_profile, &self.one.key) {
            (Some(provider), _, _) => f.write_str(provider),
            (None, Some(profile), _) => write!(f, "ClusterProfile {profile}"),
            (None, None, Some(key)) => write!(f, "key {key}"),
            (None, None, None) => f.write_str("all providers"),
        }
    }
}
