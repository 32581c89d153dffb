//! `credbroker serve`.

use std::{
    ffi::OsStr,
    os::unix::net::UnixListener,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::Context as _;
use credbroker_client::{Socket, SocketError, SocketSources};
use credbroker_exec::Failure;
use tokio::runtime::Runtime;
use tracing::{error, info, warn};

use super::console::EX_CONFIG;
use crate::app::{
    self, ConfigPlace, Daemon, Drained, Edges, Inherited, Listening, LogFormat, LogQueue, NotifyState,
    ProxyOptions, Signals, SocketSource,
};
use credbroker_config::{self as config, Config, Listen, Loaded};
use credbroker_plugin::Environment;

/// How long the process waits for its log to be written when it ends.
const LOG_FLUSH: Duration = Duration::from_millis(250);
/// Tasks that a thread polls before it looks for new events: with the usual 61, a peer waits long behind busy ones.
const EVENT_INTERVAL: u32 = 8;
/// How long a thread for blocking calls waits for the next one: longer than the interval between looks at files.
const IDLE_THREAD: Duration = Duration::from_millis(2_500);

/// Run the broker in the foreground and log to stderr
///
/// Without a configuration, every user of KUBECONFIG or ~/.kube/config that runs an exec plugin becomes a provider with the
/// user's name. The broker follows its files, and uses a changed configuration when the configuration has no problems.
/// SIGHUP makes the broker read the files immediately. SIGTERM and Ctrl-C stop the broker within ten seconds. A second
/// signal stops it immediately. The variable CREDBROKER_LOG sets the log level of the broker: error, warn, info, debug or
/// trace. If this variable is not set, the broker reads RUST_LOG.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  credbroker serve
  credbroker serve --config ~/.config/credbroker/config.yaml --log-format json
  credbroker serve -v
  CREDBROKER_LOG=info,h2=debug credbroker serve")]
pub(super) struct ServeArgs {
    /// Configuration file [env: CREDBROKER_CONFIG] [default: the first that exists of
    /// ~/.config/credbroker/config.yaml and /etc/credbroker/config.yaml]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Socket of the first listener [env: CREDBROKER_SOCKET] [default: `listen.socket` of the configuration, else
    /// $XDG_RUNTIME_DIR/credbroker/credbroker.sock (not for root), else /run/credbroker/credbroker.sock]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Run the proxy too, in the same process; `proxy` of the configuration says where it listens
    #[arg(long)]
    proxy: bool,
    #[command(flatten)]
    log: LogArgs,
    /// credbroker-exec started the broker: it leaves the session of the terminal
    #[arg(long, hide = true)]
    detached: bool,
}

/// What a process that serves logs.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(super) struct LogArgs {
    /// Format of the log lines [default: text, or journal fields if systemd connected stderr to the journal]
    #[arg(long, value_enum)]
    pub(super) log_format: Option<LogFormat>,
    /// Log more: debug messages (-v), all messages of credbroker (-vv), or messages of libraries too (-vvv)
    #[arg(short, long, action = clap::ArgAction::Count)]
    pub(super) verbose: u8,
}

pub(super) fn run(args: &ServeArgs, environment: &Environment) -> anyhow::Result<u8> {
    if args.detached {
        // Fails only if it has its own session already.
        let _own_already = rustix::process::setsid();
    }
    in_foreground(args.log, environment, |inherited, logs, runtime, signals| {
        let loaded = load(args.config.as_deref(), environment)?;
        let (of_proxy, inherited) = split(inherited, args.proxy, &loaded.config)?;
        let listening = listening(inherited, args, &loaded, environment)?;
        let proxy = args.proxy.then(|| ProxyOptions::new(loaded.config.proxy.clone(), environment, of_proxy));
        let place = ConfigPlace { flag: args.config.clone(), environment: Arc::new(environment.clone()) };
        let edges =
            Edges { reaps_orphans: true, log: Some(logs.clone()), proxy, ..Edges::system(environment) };
        runtime.block_on(serve(loaded, listening, edges, place, signals)).map_err(|error| failed(&error))
    })
}

/// Runs a process that serves until it ends, with its own log.
pub(super) fn in_foreground(
    log: LogArgs,
    environment: &Environment,
    start: impl FnOnce(Inherited, &LogQueue, &Runtime, Signals) -> Result<u8, Failed>,
) -> anyhow::Result<u8> {
    // Must be first: it clears environment variables, which is sound only while the process has one thread.
    let inherited = app::inherited_listeners().context("cannot use the sockets from systemd")?;
    let (logs, problem) = app::start_logs(log.log_format, log.verbose, environment);
    let started = || -> Result<u8, Failed> {
        app::harden();
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime =
            runtime.enable_all().event_interval(EVENT_INTERVAL).thread_keep_alive(IDLE_THREAD).build();
        let runtime = runtime.context("cannot start the async runtime").map_err(|error| failed(&error))?;
        // Before anything that takes time: until then, SIGHUP ends the process.
        let signals = {
            let _runtime = runtime.enter();
            Signals::catch().context("cannot handle signals").map_err(|error| failed(&error))?
        };
        let code = start(inherited, &logs, &runtime, signals);
        // After a second signal, do not wait for remaining tasks.
        runtime.shutdown_background();
        code
    };
    let outcome = match problem {
        Some(problem) => Err((format!("credbroker: {problem}"), EX_CONFIG)),
        None => started(),
    };
    // Through `logs` too, because writing to a full pipe would block the process.
    let code = outcome.unwrap_or_else(|(line, code)| {
        logs.line(&line);
        code
    });
    logs.flush(LOG_FLUSH);
    Ok(code)
}

/// Why a process does not serve: a line and an exit code.
pub(super) type Failed = (String, u8);

pub(super) fn failed(error: &anyhow::Error) -> Failed {
    (format!("credbroker: {error:#}"), 1)
}

/// The configuration, whose warnings are logged.
pub(super) fn load(flag: Option<&Path>, environment: &Environment) -> Result<Loaded, Failed> {
    let loaded = config::load(flag, environment);
    for warning in loaded.as_ref().map_or_else(|error| &error.warnings, |loaded| &loaded.warnings) {
        warn!("{warning}");
    }
    let loaded = loaded.map_err(|error| (error.to_string(), EX_CONFIG))?;
    info!(providers = ?loaded.config.providers.names(), "read the configuration from {}", loaded.source);
    Ok(loaded)
}

async fn serve(
    loaded: Loaded,
    listening: Vec<Listening>,
    edges: Edges,
    place: ConfigPlace,
    signals: Signals,
) -> anyhow::Result<u8> {
    app::start_traces(&place.environment);
    let paths: Vec<_> = listening.iter().map(|listening| listening.path().map(Path::to_owned)).collect();
    let edges = Edges { follow: Some((place, loaded.sources)), ..edges };
    let bound = app::build(loaded.config, listening, edges)?;
    for path in paths {
        info!("listening on {}", path.unwrap_or("the socket from systemd".into()).display());
    }
    Ok(until_stopped(bound, "broker", signals).await)
}

/// Serves until a signal or the end of an essential task, and drains. Returns the exit code.
pub(super) async fn until_stopped(mut bound: impl Daemon, name: &str, mut signals: Signals) -> u8 {
    let reload = bound.reload_request();
    let code = tokio::select! {
        task = bound.serve() => {
            error!("the {task} ended, and the {name} cannot continue without it; draining, then exiting with code 1");
            1
        }
        signal = signals.stop(|| reload.notify_one()) => {
            info!("{signal} received: draining; a second signal stops the {name} immediately");
            0
        }
    };
    app::notify(&NotifyState::Stopping);
    tokio::select! {
        drained = bound.drain() => match drained {
            Drained::Whole => info!("drained"),
            Drained::CutOff { left } => warn!(left, "the grace period is over; closing the remaining connections"),
        },
        signal = signals.stop(|| {}) => {
            warn!("{signal} received again: stopping immediately");
            return 1;
        }
    }
    code
}

/// The sockets of systemd that are the proxy's, and those of the broker.
fn split(
    inherited: Inherited,
    has_proxy: bool,
    config: &Config,
) -> Result<(Inherited, Vec<(String, UnixListener)>), Failed> {
    let Inherited { unix, tcp } = inherited;
    if let (false, Some((name, _))) = (has_proxy, tcp.first()) {
        let line = format!(
            "credbroker: systemd passed the TCP socket `{name}`, which only the proxy needs; remove it from its .socket unit, or start the broker with `--proxy`"
        );
        return Err((line, EX_CONFIG));
    }
    let of_proxy = config.proxy.iter().flat_map(|proxy| &proxy.sockets).map(|listen| listen.name.as_str());
    let of_proxy: Vec<_> = of_proxy.chain([PROXY_SOCKETS]).filter(|_| has_proxy).collect();
    let is_of_broker = |name: &String| !of_proxy.contains(&name.as_str());
    let (of_broker, unix) = unix.into_iter().partition(|(name, _)| is_of_broker(name));
    Ok((Inherited { unix, tcp }, of_broker))
}

fn listening(
    inherited: Vec<(String, UnixListener)>,
    args: &ServeArgs,
    loaded: &Loaded,
    environment: &Environment,
) -> Result<Vec<Listening>, Failed> {
    let listen = &loaded.config.listen;
    if !inherited.is_empty() {
        let has_effect = |listen: &Listen| Listen { name: Listen::default().name, ..listen.clone() };
        if args.socket.is_some() || listen.iter().any(|listen| has_effect(listen) != Listen::default()) {
            warn!(
                "`--socket` and all of `listen` except `name` have no effect, because systemd provides the sockets; change their .socket units instead"
            );
        }
        return inherited.into_iter().map(|socket| from_systemd(socket, listen)).collect();
    }
    let first = socket(args, listen.first(), environment)
        .map_err(|error| (format!("credbroker: {error}"), Failure::from(error).exit_code()))?;
    let by_variable = (args.socket.is_none() && variable(environment).is_some()).then_some(VARIABLE);
    let configured = listen.first().and_then(|listen| listen.socket.as_ref());
    if let (Some(variable), Some(configured)) = (by_variable, configured.filter(|path| **path != first)) {
        let (first, configured) = (first.display(), configured.display());
        warn!("{variable} names the socket {first}; `listen.socket`, {configured}, has no effect");
    }
    let path = |number, listen: &Listen| match &listen.socket {
        Some(path) if number > 0 => path.clone(),
        _ => first.clone(),
    };
    let options = listen.iter().enumerate().map(|(listener, listen)| {
        let options = app::socket_options(listen, &path(listener, listen))?;
        let variable = by_variable.filter(|_| listener == 0);
        Ok(Listening { listener, source: SocketSource::Publish(options), variable })
    });
    options.collect::<anyhow::Result<_>>().map_err(|error| (format!("{}: {error}", loaded.source), EX_CONFIG))
}

/// A socket of systemd belongs to the listener with the name of the socket, or to the only listener.
fn from_systemd((name, socket): (String, UnixListener), listen: &[Listen]) -> Result<Listening, Failed> {
    let by_name = listen.iter().position(|listen| listen.name == name);
    let only = (listen.len() == 1).then_some(0);
    let Some(listener) = by_name.or(only) else {
        let names = listen.iter().map(|listen| listen.name.as_str()).collect::<Vec<_>>().join(", ");
        let line = format!(
            "credbroker: systemd passed a socket with the name `{name}`, but the listeners are {names}; set `FileDescriptorName=` in its .socket unit to one of them"
        );
        return Err((line, EX_CONFIG));
    };
    Ok(Listening { listener, source: SocketSource::Inherited(socket), variable: None })
}

/// The name of the units with sockets of the proxy.
const PROXY_SOCKETS: &str = "credbroker-proxy";

/// Names the socket of the first listener, and wins over the configuration.
const VARIABLE: &str = "CREDBROKER_SOCKET";

fn variable(environment: &Environment) -> Option<&OsStr> {
    environment.set(VARIABLE)
}

/// The socket of the first listener: of the flag, else of the variable, else of the configuration, else the default one.
fn socket(
    args: &ServeArgs,
    first: Option<&Listen>,
    environment: &Environment,
) -> Result<PathBuf, SocketError> {
    let variable = variable(environment);
    if let (None, None, Some(configured)) = (&args.socket, variable, first.and_then(|it| it.socket.clone())) {
        return Ok(configured);
    }
    let sources = SocketSources::new()
        .flag(args.socket.as_deref().map(Path::as_os_str))
        .variable(variable)
        .runtime_directory(environment.get("XDG_RUNTIME_DIR"))
        .is_root(rustix::process::geteuid().is_root());
    let socket = Socket::locate(&sources)?;
    let ignored = socket.ignored_runtime_directory();
    if let Some(ignored) = &ignored {
        warn!("{ignored}");
    }
    let mut candidates = socket.candidates().skip(usize::from(ignored.is_some()));
    Ok(candidates.next().unwrap_or(Path::new(Socket::SYSTEM)).to_owned())
}

#[cfg(test)]
mod tests;
