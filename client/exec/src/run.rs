//! The program, from its arguments to its exit code.

use std::{ffi::OsString, mem::forget, sync::Arc, time::Duration};

use credbroker_client::{
    Cluster, Credential, Socket,
    blocking::{CredentialRequest, Notice, Timeouts, get_credential},
};
use credbroker_proto::{RECURSION_VARIABLE, v1::credential_ref::Source};

use crate::{
    Edges, Failure,
    arguments::{Arguments, Command, HELP, parse},
    caller::caller,
    document::document,
    exec_info::{self, ExecInfo, ExecInfoError},
    failure::Named,
    request::{request, socket},
};

/// Longer than a plugin may run by default, so that its error arrives.
const IN_ALL: Duration = Duration::from_secs(45);
/// A person would rather read that there is no broker; a controller would rather outlive a restart.
const FOR_BROKER_AT_A_TERMINAL: Duration = Duration::from_secs(2);
const FOR_BROKER: Duration = Duration::from_secs(5);
const SILENCE: Duration = Duration::from_secs(1);

/// The shim: prints one `ExecCredential` and returns the exit code. `args` is without the program's name.
pub fn run(args: impl Iterator<Item = OsString>, mut edges: Edges) -> u8 {
    if let Some(path) = edges.variable(RECURSION_VARIABLE) {
        Edges::mark(path);
        return fail(&mut edges, &Failure::Recursion, None);
    }
    let provider = edges.variable("CREDBROKER_PROVIDER");
    let arguments = match parse(args, provider.map(OsString::as_os_str)) {
        Ok(Command::Ask(arguments)) => arguments,
        Ok(Command::Help) => return print(&mut edges, HELP, None),
        Ok(Command::Version) => {
            return print(&mut edges, concat!("credbroker-exec ", env!("CARGO_PKG_VERSION"), "\n"), None);
        }
        Err(error) => return fail(&mut edges, &error.into(), None),
    };
    let source = Some(&arguments.source);
    match credential_line(&arguments, &mut edges) {
        Ok(line) => print(&mut edges, &line, source),
        Err(failure) => fail(&mut edges, &failure, source),
    }
}

/// Asks with the shim's patience: 2 s for a broker to appear when a person waits, 5 s otherwise, and `in_all` (45 s
/// when `None`) for everything. It blocks, and calls `tell` when a second has passed. For a process that ends with the
/// answer: the connection stays open until then.
///
/// # Errors
///
/// Those of [`get_credential`].
pub fn ask_patiently(
    socket: &Socket,
    request: &CredentialRequest,
    in_all: Option<Duration>,
    at_a_terminal: bool,
    tell: Option<&mut dyn FnMut()>,
) -> Result<Credential, Failure> {
    let for_broker = if at_a_terminal { FOR_BROKER_AT_A_TERMINAL } else { FOR_BROKER };
    let notice = tell.map(|tell| Notice::new(SILENCE, tell));
    let timeouts = Timeouts::default().broker_start(for_broker).total(in_all.unwrap_or(IN_ALL));
    let (credential, connection) = get_credential(socket, request, timeouts, notice)?;
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
    let request = request(arguments.source.clone(), cluster, &edges.environment, caller, terminal)?;
    let credential = with_progress(edges, &arguments.source, |tell| {
        ask_patiently(&socket, &request, arguments.timeout, terminal, tell)
    })?;
    Ok(document(version, &credential, (edges.clock)())?)
}

/// `None`: the client does not speak of itself (JavaScript, Java).
fn exec_info(edges: &Edges) -> Result<Option<ExecInfo>, ExecInfoError> {
    let Some(value) = edges.variable("KUBERNETES_EXEC_INFO").filter(|value| !value.is_empty()) else {
        return Ok(None);
    };
    let text = value.to_str().ok_or(ExecInfoError::Syntax { line: 1, column: 1 })?;
    exec_info::parse(text).map(Some)
}

/// Empty where the system does not say who started us. Without `KUBERNETES_EXEC_INFO` (JavaScript, Java, a shell) the
/// request says so, and the broker makes less of a repeat.
fn caller_of(edges: &Edges) -> String {
    let info = edges.variable("KUBERNETES_EXEC_INFO").and_then(|value| value.to_str()).unwrap_or_default();
    (edges.parent)().map(|parent| caller(&parent, info)).unwrap_or_default()
}

/// At a terminal, shows what the shim waits for after a second, and clears the line when the answer arrives.
fn with_progress<T>(
    edges: &mut Edges,
    source: &Source,
    answer: impl FnOnce(Option<&mut dyn FnMut()>) -> T,
) -> T {
    if !edges.terminal {
        return answer(None);
    }
    let mut shown = false;
    let mut tell = || {
        edges.complain(&format!("credbroker-exec: waiting for {} ...", Named(source)));
        shown = true;
    };
    let answer = answer(Some(&mut tell));
    if shown {
        edges.complain("\r\x1b[K");
    }
    answer
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
