//! The program, from its arguments to its exit code.

use std::{ffi::OsString, mem::forget, sync::Arc, time::Duration};

use credbroker_client::{
    Cluster, Credential, Error, Reason, Socket,
    blocking::{CredentialRequest, Notice, Timeouts, get_credential, log_in},
};

use crate::{
    arguments::{Arguments, Command, HELP, parse},
    caller::caller,
    document::document,
    edges::Edges,
    exec_info::{self, ExecInfo, ExecInfoError},
    failure::Failure,
    notice::with_notice,
    on_demand::Starter,
    request::{request, socket},
    source::Source,
};

/// Default of `--timeout`: longer than a plugin may run by default, so that its error arrives.
const TOTAL: Duration = Duration::from_secs(45);
/// How long a broker that does not run is waited for. A person prefers an early error, a controller a restart without one.
const BROKER_START_AT_TERMINAL: Duration = Duration::from_secs(2);
const BROKER_START: Duration = Duration::from_secs(5);
/// How long a broker that was started is waited for.
const ON_DEMAND_START: Duration = Duration::from_secs(10);

/// The shim: prints one `ExecCredential` and returns the exit code. `args` is without the program's name.
pub fn run(args: impl Iterator<Item = OsString>, edges: &mut Edges) -> u8 {
    let provider = edges.variable("CREDBROKER_PROVIDER");
    let arguments = match parse(args, provider) {
        Ok(Command::Ask(arguments)) => arguments,
        Ok(Command::Help) => return print(edges, HELP, None),
        Ok(Command::Version) => {
            return print(edges, concat!("credbroker-exec ", env!("CARGO_PKG_VERSION"), "\n"), None);
        }
        Err(error) => return fail(edges, &error.into(), None),
    };
    let source = Some(&arguments.source);
    match credential_line(&arguments, edges) {
        Ok(line) => print(edges, &line, source),
        Err(failure) => fail(edges, &failure, source),
    }
}

/// Requests the credential with the timeouts of the shim: 2 s for a broker to start if a person waits, else 5 s, and
/// `total` for everything (`None`: 45 s, or as long as a run may take that it attends). Blocks, and gives `notice`. It is for
/// a process that ends with the answer: the connection stays open until then.
///
/// # Errors
///
/// Those of [`get_credential`].
pub fn request_patiently(
    socket: &Socket,
    request: &CredentialRequest,
    total: Option<Duration>,
    at_terminal: bool,
    notice: Option<Notice<'_>>,
) -> Result<Credential, Failure> {
    let broker_start = if at_terminal { BROKER_START_AT_TERMINAL } else { BROKER_START };
    request_credential(socket, request, total, broker_start, notice)
}

/// As [`request_patiently`], for a broker that may take `broker_start` to start.
fn request_credential(
    socket: &Socket,
    request: &CredentialRequest,
    total: Option<Duration>,
    broker_start: Duration,
    notice: Option<Notice<'_>>,
) -> Result<Credential, Failure> {
    let timeouts = Timeouts::default().broker_start(broker_start).total(total.unwrap_or(TOTAL));
    let timeouts = timeouts.follow_run(total.is_none());
    let (credential, connection) = get_credential(socket, request, timeouts, notice)?;
    forget(connection);
    Ok(credential)
}

/// Runs the plugin for a login, and attends the run. Blocks, with the timeouts of [`request_patiently`] for a person.
///
/// # Errors
///
/// Those of [`log_in`].
pub fn log_in_patiently(
    socket: &Socket,
    request: &CredentialRequest,
    total: Option<Duration>,
    notice: Notice<'_>,
) -> Result<Credential, Failure> {
    let timeouts = Timeouts::default().broker_start(BROKER_START_AT_TERMINAL).total(total.unwrap_or(TOTAL));
    let (credential, connection) = log_in(socket, request, timeouts.follow_run(total.is_none()), notice)?;
    forget(connection);
    Ok(credential)
}

fn credential_line(arguments: &Arguments, edges: &mut Edges) -> Result<String, Failure> {
    let info = exec_info(edges)?;
    let version = info.as_ref().map(|info| info.version).or(arguments.api_version).unwrap_or_default();
    let from_argument = || arguments.server.clone().map(Cluster::at);
    let cluster = info.and_then(|info| info.cluster).or_else(from_argument);
    let (flag, server_uid) = (arguments.socket.as_deref(), arguments.server_uid.as_deref());
    let socket = socket(flag, server_uid, &edges.environment, edges.is_root)?;
    let terminal = edges.terminal;
    let caller = caller_of(edges);
    let source = arguments.requested(&edges.environment);
    let request = request(source, cluster, &edges.environment, caller, terminal)?;
    let ask = |socket: &Socket, start: Option<Duration>, notice: Option<Notice<'_>>| match start {
        Some(start) => request_credential(socket, &request, arguments.timeout, start, notice),
        None => request_patiently(socket, &request, arguments.timeout, terminal, notice),
    };
    let credential = with_start(Starter::of(arguments, edges), &socket, |socket, start| {
        if !terminal {
            return ask(socket, start, None);
        }
        with_notice("credbroker-exec", &arguments.source, &mut edges.stderr, |notice| {
            ask(socket, start, Some(notice))
        })
    });
    // The error of an attempt to connect says it too.
    if terminal
        && !matches!(credential, Err(Failure::Broker(Error::Unreachable { .. })))
        && let Some(ignored) = socket.ignored_runtime_directory()
    {
        edges.complain(&format!("credbroker-exec: {ignored}\n"));
    }
    let credential = credential?;
    let line = document(version, &credential, (edges.clock)())?;
    // The process ends now, and what is printed has the same secret.
    forget((credential, request));
    Ok(line)
}

/// Asks with `ask`, and if no broker serves this user, starts the user's own one where that is allowed. `ask` gets the
/// socket, and how long a broker may take to start if that is not the usual time.
fn with_start<T>(
    starter: Option<Starter>,
    socket: &Socket,
    mut ask: impl FnMut(&Socket, Option<Duration>) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let Some(starter) = starter else { return ask(socket, None) };
    // A broker that can be started is not waited for before.
    let failure = match ask(socket, Some(Duration::ZERO)) {
        Err(Failure::Broker(failure)) => failure,
        answer => return answer,
    };
    let is_unreachable = matches!(failure, Error::Unreachable { .. });
    // The machine's broker does not serve this user.
    let is_refused = matches!(failure.reason(), Some(Reason::PeerDenied | Reason::UnknownDefinition));
    let may_be_starting = failure.may_be_starting();
    if !is_unreachable && !is_refused && !may_be_starting {
        return Err(failure.into());
    }
    match starter.start()? {
        Some(own) => ask(&own, Some(ON_DEMAND_START)),
        None if may_be_starting => ask(socket, None),
        None => Err(failure.into()),
    }
}

/// `None`: the client sets no `KUBERNETES_EXEC_INFO`, as those for JavaScript and Java.
fn exec_info(edges: &Edges) -> Result<Option<ExecInfo>, ExecInfoError> {
    let Some(value) = edges.variable("KUBERNETES_EXEC_INFO").filter(|value| !value.is_empty()) else {
        return Ok(None);
    };
    let text = value.to_str().ok_or(ExecInfoError::Syntax { line: 1, column: 1 })?;
    exec_info::parse(text).map(Some)
}

/// Identity of the process that started the shim. `None`: unknown. A client that starts its plugin through a shell sets no
/// `KUBERNETES_EXEC_INFO`. Then the broker verifies what looks like a rejection, so that scripts cause no runs.
fn caller_of(edges: &Edges) -> Option<String> {
    let info = edges.variable("KUBERNETES_EXEC_INFO").and_then(|value| value.to_str()).unwrap_or_default();
    (edges.parent)(info.is_empty()).map(|parent| caller(&parent, info))
}

fn print(edges: &mut Edges, text: &str, source: Option<&Source>) -> u8 {
    match edges.print(text) {
        Ok(()) => 0,
        Err(error) => fail(edges, &Failure::Output(Arc::new(error)), source),
    }
}

fn fail(edges: &mut Edges, failure: &Failure, source: Option<&Source>) -> u8 {
    edges.complain(&format!("credbroker-exec: {}\n", failure.line(source)));
    failure.exit_code()
}
