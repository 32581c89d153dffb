//! The program, from its arguments to its exit code.

use std::{ffi::OsString, io, mem::forget, path::PathBuf, sync::Arc, time::Duration};

use credbroker_client::{
    Cluster, Credential, Error, Reason, Socket,
    blocking::{CredentialRequest, Notice, Timeouts, get_credential, log_in},
};

use crate::{
    arguments::{Arguments, Command, HELP, parse},
    bridge,
    caller::caller,
    document::document,
    edges::Edges,
    exec_info::{self, ExecInfo, ExecInfoError},
    failure::Failure,
    fallback::Fallback,
    notice::{visible, with_notice},
    on_demand::Starter,
    proxy::handle_line,
    request::{request, socket},
    running::holders,
    source::Source,
    sudo,
};

/// Default of `--timeout`: longer than a plugin may run by default, so that its error arrives.
const TOTAL: Duration = Duration::from_secs(45);
/// How long a broker that does not run is waited for. A user prefers an early error, a controller a restart without one.
const BROKER_START_AT_TERMINAL: Duration = Duration::from_secs(2);
const BROKER_START: Duration = Duration::from_secs(5);
/// How long a broker that was started is waited for, and where the original plugin may run instead.
const ON_DEMAND_START: Duration = Duration::from_secs(10);
const SHORT_START: Duration = Duration::from_secs(1);
/// How long a broker that is restarted is waited for: it drains for ten seconds.
const RESTART: Duration = Duration::from_secs(20);
/// How long the first byte of a broker is waited for, and where the original plugin may run instead.
const SILENCE: Duration = Duration::from_secs(5);
const QUICK: Duration = Duration::from_millis(250);

/// The shim: prints one `ExecCredential` and returns the exit code. `args` is without the program's name.
pub fn run(args: impl Iterator<Item = OsString>, edges: &mut Edges) -> u8 {
    let provider = edges.variable("CREDBROKER_PROVIDER");
    let arguments = match parse(args, provider) {
        Ok(Command::Ask(arguments)) => arguments,
        Ok(Command::Handle(arguments)) => {
            return match handle_line(&arguments, edges) {
                Ok(line) => print(edges, &line, None),
                Err(failure) => fail(edges, &failure, None),
            };
        }
        Ok(Command::Bridge(arguments)) => {
            let failure = bridge::run(&arguments, edges);
            return fail(edges, &failure, None);
        }
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

/// Requests the credential with the timeouts of the shim: `start` for a broker to start (`None`: 2 s if a user waits, else
/// 5 s), and `total` for everything (`None`: 45 s, or as long as a run may take that it attends). Blocks, and gives `notice`. It
/// is for a process that ends with the answer: the connection stays open until then.
///
/// # Errors
///
/// Those of [`get_credential`].
pub fn request_patiently(
    socket: &Socket,
    request: &CredentialRequest,
    (start, total): (Option<Duration>, Option<Duration>),
    at_terminal: bool,
    notice: Option<Notice<'_>>,
) -> Result<Credential, Failure> {
    let start = start.unwrap_or_else(|| usual_start(at_terminal));
    request_credential(socket, request, timeouts(start, total), notice)
}

fn usual_start(at_terminal: bool) -> Duration {
    if at_terminal { BROKER_START_AT_TERMINAL } else { BROKER_START }
}

fn timeouts(broker_start: Duration, total: Option<Duration>) -> Timeouts {
    let timeouts = Timeouts::default().broker_start(broker_start).total(total.unwrap_or(TOTAL));
    timeouts.follow_run(total.is_none())
}

fn request_credential(
    socket: &Socket,
    request: &CredentialRequest,
    timeouts: Timeouts,
    notice: Option<Notice<'_>>,
) -> Result<Credential, Failure> {
    let (credential, connection) = get_credential(socket, request, timeouts, notice)?;
    forget(connection);
    Ok(credential)
}

/// Runs the plugin for a login, and attends the run. Blocks, with the timeouts of [`request_patiently`] for a user.
///
/// # Errors
///
/// Those of [`log_in`].
pub fn log_in_patiently(
    socket: &Socket,
    request: &CredentialRequest,
    (start, total): (Option<Duration>, Option<Duration>),
    notice: Notice<'_>,
) -> Result<Credential, Failure> {
    let timeouts = timeouts(start.unwrap_or(BROKER_START_AT_TERMINAL), total);
    let (credential, connection) = log_in(socket, request, timeouts, notice)?;
    forget(connection);
    Ok(credential)
}

fn credential_line(arguments: &Arguments, edges: &mut Edges) -> Result<String, Failure> {
    let info = exec_info(edges)?;
    let version = info.as_ref().map(|info| info.version).or(arguments.api_version).unwrap_or_default();
    let from_argument = || arguments.server.clone().map(Cluster::at);
    let of_start = info.as_ref().map(|info| (info.version, info.interactive));
    let cluster = info.and_then(|info| info.cluster).or_else(from_argument);
    let (flag, broker_uid) = (arguments.socket.as_deref(), arguments.broker_uid.as_deref());
    let mut socket = socket(flag, broker_uid, &edges.environment, edges.is_root)?;
    let terminal = edges.terminal;
    let sudo = sudo::Caller::of(arguments, &socket, edges);
    let caller = caller_of(edges);
    let source = arguments.requested(&edges.environment);
    let fallback = Fallback::of(arguments, &source);
    let sent = sudo.as_ref().map_or(&edges.environment, |sudo| &sudo.environment);
    let request = request(source.clone(), cluster, sent, caller, terminal)?;
    if let Some(sudo::Caller { uid, socket: of_user, .. }) = &sudo {
        edges.complain(&format!("credbroker-exec: asks the broker of uid {uid}, who called sudo\n"));
        socket.clone_from(of_user);
    }
    let ask = |socket: &Socket, patience: Patience| {
        let timeouts = timeouts(patience.start.unwrap_or_else(|| usual_start(terminal)), arguments.timeout)
            .silence(patience.silence);
        if !terminal {
            return request_credential(socket, &request, timeouts, None);
        }
        with_notice("credbroker-exec", &arguments.source, &mut edges.stderr, |notice| {
            request_credential(socket, &request, timeouts, Some(notice))
        })
    };
    let (environment, parent) = (&edges.environment, edges.parent_environment);
    let program = || fallback.as_ref()?.program(environment, parent);
    let original = fallback.is_some().then_some(&program as &dyn Fn() -> _);
    let is_named = flag.is_some() || broker_uid.is_some();
    let found = find(&socket, Starter::of(is_named, environment), original, ask);
    let found = match found {
        // The user's broker does not serve root.
        Err(Failure::Broker(why)) if sudo.is_some() && why.reason() == Some(Reason::PeerDenied) => {
            match program() {
                Some(program) => Ok(Found::Original(program, why)),
                None => Err(why.into()),
            }
        }
        found => found,
    };
    let credential = match (found, &fallback) {
        (Ok(Found::Original(program, why)), Some(fallback)) => {
            if terminal {
                let command = fallback.command().to_string_lossy();
                edges.complain(&visible(&format!("credbroker-exec: {why}; {command} runs without it\n")));
            }
            return Err(Failure::Fallback(Arc::new(fallback.run(program, of_start))));
        }
        (Ok(Found::Original(_, why)), None) => Err(why.into()),
        (Ok(Found::Answer(credential)), _) => Ok(credential),
        (Err(failure), _) => Err(failure),
    };
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

/// Asks with `ask`, which gets how long to wait for a broker to start (`None`: as usual). If no broker serves this user, starts
/// the user's own one where `starter` may, and asks again.
///
/// # Errors
///
/// That of `ask`, or why the broker cannot be started.
pub fn find_or_start<T>(
    socket: &Socket,
    starter: Option<Starter>,
    mut ask: impl FnMut(&Socket, Option<Duration>) -> Result<T, Failure>,
) -> Result<T, Failure> {
    match find(socket, starter, None, |socket, patience| ask(socket, patience.start))? {
        Found::Answer(answer) => Ok(answer),
        Found::Original(_, why) => Err(why.into()),
    }
}

/// How long a broker is waited for.
#[derive(Clone, Copy)]
struct Patience {
    /// Until it listens; `None`: the usual time.
    start: Option<Duration>,
    /// For the first byte.
    silence: Duration,
}

impl Patience {
    const USUAL: Self = Self { start: None, silence: SILENCE };

    const fn for_start(start: Duration) -> Self {
        Self { start: Some(start), silence: SILENCE }
    }

    /// For a broker that runs, but is starting or ending, or hangs, or that is restarted. `None`: none does.
    fn for_running(socket: &Socket) -> Option<Self> {
        match holders(socket) {
            [_, Some(_)] => Some(Self { start: Some(RESTART), silence: RESTART }),
            [Some(_), None] => Some(Self::USUAL),
            [None, None] => None,
        }
    }
}

/// What is printed, or who prints it.
enum Found<T> {
    Answer(T),
    /// No broker answers, for this reason, and the plugin at this path may run.
    Original(PathBuf, Error),
}

/// Asks with `ask`. If no broker serves this user, starts the user's own one where that is allowed. If none answers, returns
/// the path that `original` does.
fn find<T>(
    socket: &Socket,
    starter: Option<Starter>,
    original: Option<&dyn Fn() -> Option<PathBuf>>,
    mut ask: impl FnMut(&Socket, Patience) -> Result<T, Failure>,
) -> Result<Found<T>, Failure> {
    if starter.is_none() && original.is_none() {
        return ask(socket, Patience::USUAL).map(Found::Answer);
    }
    let program = |why: &Error| original.filter(|_| is_absent(why))?();
    let answer = |answer: Result<T, Failure>| match answer {
        Err(Failure::Broker(why)) => match program(&why) {
            Some(program) => Ok(Found::Original(program, why)),
            None => Err(why.into()),
        },
        answer => answer.map(Found::Answer),
    };
    // What can be started, or replaced by the original, is not waited for before.
    let silence = if original.is_some() { QUICK } else { SILENCE };
    let why = match ask(socket, Patience { start: Some(Duration::ZERO), silence }) {
        Err(Failure::Broker(why)) => why,
        other => return other.map(Found::Answer),
    };
    let is_unreachable = matches!(why, Error::Unreachable { .. });
    // The machine's broker does not serve this user.
    let is_refused = matches!(why.reason(), Some(Reason::PeerDenied | Reason::UnknownDefinition));
    let may_be_starting = why.may_be_starting();
    if !is_unreachable && !is_refused && !may_be_starting {
        return Err(why.into());
    }
    let program = program(&why);
    match starter.map(|starter| starter.start()).transpose() {
        Ok(Some(Some(own))) => {
            let start = if program.is_some() { SHORT_START } else { ON_DEMAND_START };
            let asked = ask(&own, Patience::for_start(start));
            // It is not the one that was started: it is ending.
            let ending = match &asked {
                Err(Failure::Broker(why)) if program.is_some() && is_absent(why) => {
                    Patience::for_running(&own)
                }
                _ => None,
            };
            return answer(ending.map_or(asked, |patience| ask(&own, patience)));
        }
        Err(failure) if program.is_none() => return Err(failure.into()),
        Ok(_) | Err(_) => {}
    }
    match program {
        Some(program) => match (is_refused, Patience::for_running(socket)) {
            (false, Some(patience)) => answer(ask(socket, patience)),
            _ => Ok(Found::Original(program, why)),
        },
        None if may_be_starting || (original.is_some() && is_silence(&why)) => {
            answer(ask(socket, Patience::USUAL))
        }
        None => Err(why.into()),
    }
}

/// Whether the original may run: no broker listens or says a word, or it does not know the definition.
fn is_absent(why: &Error) -> bool {
    let is_kind = |kinds: &[io::ErrorKind]| kind(why).is_some_and(|kind| kinds.contains(&kind));
    is_silence(why)
        || is_kind(&[io::ErrorKind::NotFound, io::ErrorKind::ConnectionRefused])
        || why.reason() == Some(Reason::UnknownDefinition)
}

/// Whether a process accepted the connection and sent nothing.
fn is_silence(why: &Error) -> bool {
    kind(why) == Some(io::ErrorKind::TimedOut)
}

fn kind(why: &Error) -> Option<io::ErrorKind> {
    let Error::Unreachable { source, .. } = why else { return None };
    source.downcast_ref::<io::Error>().map(io::Error::kind)
}

/// `None`: the client sets no `KUBERNETES_EXEC_INFO`, as those for JavaScript and Java.
pub(crate) fn exec_info(edges: &Edges) -> Result<Option<ExecInfo>, ExecInfoError> {
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
