//! Requests to a running broker: where it listens, one connection per command, and which credentials they are about.

use std::{
    ffi::OsString,
    fmt::{self, Debug},
    io::{self, Write},
    time::Duration,
};

use anyhow::Context as _;
use clap::ArgGroup;
use credbroker_client::{
    Client, ClusterProfileRef, CredentialRef, Error, Failure as Reported, Reason, Socket, SocketError,
    admin::{Admin, Selector},
};
use credbroker_exec::{Failure, Source, Starter, find_or_start, socket, timeout, with_variables};
use tokio::time::sleep;

use super::{
    console::Console,
    context::{self, Target},
};
use credbroker_plugin::Environment;

/// Where the broker listens.
#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct SocketArg {
    /// Socket of the broker, a path or unix:///absolute/path [env: CREDBROKER_SOCKET] [default:
    /// $XDG_RUNTIME_DIR/credbroker/credbroker.sock if it exists and the user is not root, else /run/credbroker/credbroker.sock]
    #[arg(long = "socket", value_name = "PATH")]
    pub(super) path: Option<OsString>,
    /// Trust only a broker with this uid on that socket [env: CREDBROKER_BROKER_UID] [default: this user, root, or the
    /// owner of the socket's directory]
    #[arg(long, value_name = "UID")]
    pub(super) broker_uid: Option<OsString>,
}

impl SocketArg {
    pub(super) fn locate(&self, environment: &Environment) -> Result<Socket, SocketError> {
        let is_root = || rustix::process::geteuid().is_root();
        socket(self.path.as_deref(), self.broker_uid.as_deref(), &(&environment.0).into(), is_root)
    }

    /// Starts the user's broker on demand, where that is allowed.
    pub(super) fn starter(&self, environment: &Environment) -> Option<Starter> {
        Starter::of(self.path.is_some() || self.broker_uid.is_some(), &(&environment.0).into())
    }
}

/// What `Client::connect` allows a peer that sends nothing; then there is no broker. A deadline of the same length would
/// make it a matter of luck which of the two errors is reported.
const CONNECT: Duration = Duration::from_secs(5);
/// What `status` and `doctor` say of a broker that the next request starts.
pub(super) const ON_DEMAND: &str = "not running; starts on demand";
/// How often a broker that starts is looked for.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The broker that a command asks.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct BrokerArgs {
    #[command(flatten)]
    pub(super) socket: SocketArg,
    /// Longest time to wait for each answer of the broker, such as 500ms, 10s or 1h30m
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = timeout)]
    pub(super) timeout: Duration,
}

impl Default for BrokerArgs {
    fn default() -> Self {
        Self { socket: SocketArg::default(), timeout: Duration::from_secs(5) }
    }
}

impl BrokerArgs {
    /// As [`try_ask`](Self::try_ask), for a command that ends with the failure of its request.
    pub(super) fn ask<T>(
        &self,
        environment: &Environment,
        request: impl AsyncFnOnce(Client) -> Result<T, Error>,
    ) -> anyhow::Result<T> {
        Ok(self.try_ask(environment, request)??)
    }

    /// Connects once and runs `request`. The inner error is the broker's answer or its absence, the outer one a defect of
    /// this process.
    pub(super) fn try_ask<T>(
        &self,
        environment: &Environment,
        request: impl AsyncFnOnce(Client) -> Result<T, Error>,
    ) -> anyhow::Result<Result<T, Failure>> {
        self.ask_of(None, environment, request)
    }

    /// As [`try_ask`](Self::try_ask), and starts the user's broker on demand.
    pub(super) fn start_and_ask<T>(
        &self,
        environment: &Environment,
        request: impl AsyncFnOnce(Client) -> Result<T, Error>,
    ) -> anyhow::Result<Result<T, Failure>> {
        self.ask_of(self.socket.starter(environment), environment, request)
    }

    /// Whether `failure` says that no broker runs, and a request would start one.
    pub(super) fn starts_on_demand(&self, failure: &Failure, environment: &Environment) -> bool {
        matches!(failure, Failure::Broker(Error::Unreachable { .. }))
            && self.socket.starter(environment).is_some_and(|starter| starter.may_start())
    }

    fn ask_of<T>(
        &self,
        starter: Option<Starter>,
        environment: &Environment,
        request: impl AsyncFnOnce(Client) -> Result<T, Error>,
    ) -> anyhow::Result<Result<T, Failure>> {
        let socket = match self.socket.locate(environment) {
            Ok(socket) => socket,
            Err(error) => return Ok(Err(error.into())),
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.context("cannot start the async runtime")?;
        let connected = find_or_start(&socket, starter, |socket, start| {
            Ok(runtime.block_on(connect_within(start.unwrap_or_default(), socket, self.timeout))?)
        });
        let answer = connected.and_then(|client| Ok(runtime.block_on(request(client))?));
        if answer.is_ok() {
            note_ignored(&socket, &mut io::stderr())?;
        }
        Ok(answer)
    }
}

pub(super) async fn connect(socket: &Socket, limit: Duration) -> Result<Client, Error> {
    let patience = if limit < CONNECT { limit } else { Duration::MAX };
    let connecting = tokio::time::timeout(patience, Client::connect(socket)).await;
    Ok(connecting.unwrap_or(Err(Error::timeout(limit)))?.timeout(limit))
}

/// As [`connect`], and waits for a broker that starts, as long as `start`.
async fn connect_within(start: Duration, socket: &Socket, limit: Duration) -> Result<Client, Error> {
    let mut more = start.as_millis() / POLL_INTERVAL.as_millis();
    loop {
        let connected = connect(socket, limit).await;
        if more == 0 || !connected.as_ref().is_err_and(Error::may_be_starting) {
            return connected;
        }
        more -= 1;
        sleep(POLL_INTERVAL).await;
    }
}

/// The administrative calls, which mark the credentials that the shim would get with this environment.
pub(super) fn admin(client: &Client, environment: &Environment) -> Admin {
    // The shim could not send a variable, so it gets none.
    let caller = with_variables(CredentialRef::provider(""), &(&environment.0).into());
    caller.map_or_else(|_failed| client.admin(), |caller| client.admin().for_caller(&caller))
}

/// Says that `XDG_RUNTIME_DIR` was ignored. Errors say it themselves.
pub(super) fn note_ignored(socket: &Socket, err: &mut dyn Write) -> io::Result<()> {
    socket.ignored_runtime_directory().map_or(Ok(()), |ignored| writeln!(err, "credbroker: {ignored}"))
}

/// A provider, or the provider of a context or a cluster.
#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct SourceArgs {
    #[arg(value_name = "NAME", conflicts_with = "cluster_profile")]
    pub(super) provider: Option<String>,
    /// Digest of one definition of the provider, if several kubeconfigs define the name: `credbroker status -o json` lists
    /// the digests
    #[arg(long, value_name = "DIGEST", requires = "provider")]
    definition: Option<String>,
    #[arg(long, value_name = "NAMESPACE/NAME")]
    cluster_profile: Option<ClusterProfileRef>,
}

impl SourceArgs {
    pub(super) fn source(&self) -> Option<Source> {
        let profile = self.cluster_profile.clone().map(Source::ClusterProfile);
        let definition = self.definition.clone();
        profile.or_else(|| Some(Source::Provider { name: self.provider.clone()?, definition }))
    }
}

/// All that the broker holds of `source`; without a definition, of all its definitions.
pub(super) fn held_of(source: Source) -> Selector {
    match source {
        Source::ClusterProfile(profile) => Selector::ClusterProfile(profile),
        Source::Context { name, digest } => Selector::Context { name, digest },
        Source::Provider { name, definition: None } => Selector::Provider(name),
        Source::Provider { name: provider, definition: Some(definition) } => {
            Selector::Definition { provider, definition }
        }
    }
}

/// What a command selects: one of a source, an id, and all.
#[derive(Debug, clap::Args)]
#[command(group = ArgGroup::new("selected").args(["provider", "cluster_profile", "id", "all"]))]
#[command(mut_arg("provider", |arg| arg.help("Select the credentials of this provider, or of the user of this context [default: the current context]")))]
#[command(mut_arg("cluster_profile", |arg| arg.help("Select the credentials for this cluster, as `credbroker clusters` lists it")))]
#[command(mut_arg("definition", |arg| arg.display_order(3)))]
pub(super) struct SelectionArgs {
    #[command(flatten)]
    pub(super) source: SourceArgs,
    /// Select the credential with this id, as `credbroker status` prints it
    #[arg(long)]
    id: Option<String>,
    /// Select all credentials
    #[arg(long)]
    all: bool,
}

/// What the arguments of a command lead to.
#[derive(Debug)]
pub(super) struct Selection {
    pub(super) selector: Selector,
    /// `None`: it is an id, or all.
    pub(super) target: Option<Target>,
}

impl SelectionArgs {
    /// As [`context::resolve`].
    pub(super) fn resolve<T>(
        &self,
        console: &mut Console<'_>,
        mut call: impl FnMut(&Selection, &mut Console<'_>) -> anyhow::Result<Result<T, Failure>>,
    ) -> anyhow::Result<Result<T, Failure>> {
        let id = self.id.clone().map(Selector::Id);
        if let Some(selector) = id.or_else(|| self.all.then_some(Selector::All)) {
            return call(&Selection { selector, target: None }, console);
        }
        let of = |target: &Target| Selection {
            selector: held_of(target.source.clone()),
            target: Some(target.clone()),
        };
        let call = |target: &Target, console: &mut Console<'_>| call(&of(target), console);
        Ok(context::resolve(&self.source, (None, None), console, call)?.1)
    }
}

impl fmt::Display for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.target.as_ref().map(|target| &target.source), &self.selector) {
            (Some(Source::Provider { name, .. }), _) => f.write_str(name),
            (Some(profile), _) => write!(f, "{profile}"),
            (None, Selector::Id(id)) => write!(f, "id {id}"),
            (None, _) => f.write_str("all providers"),
        }
    }
}

/// The name of a state, a verdict or a readiness, in tables and in JSON: the name of its variant, which is one word.
pub(super) fn name(variant: impl Debug) -> String {
    format!("{variant:?}").to_lowercase()
}

pub(super) fn reason(failure: &Reported) -> &'static str {
    failure.reason.map_or("ERROR_REASON_UNSPECIFIED", Reason::name)
}
