//! `credbroker serve`.

use std::{
    os::unix::net::UnixListener,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context as _;
use credbroker_client::{Locations, Socket, SocketError};
use credbroker_exec::Failure;
use tracing::{error, info, warn};

use super::EX_CONFIG;
use crate::{
    app::{self, Drained, Edges, Listening, LogFormat, LogQueue, Readiness, Signals},
    config::{self, Config, Listen, Loaded},
    plugin::Environment,
};

/// How long the log may take to be written when the process ends.
const LAST_WORDS: Duration = Duration::from_millis(250);

/// Run the broker in the foreground; logs go to stderr
///
/// Without a configuration every exec user of KUBECONFIG or ~/.kube/config is a provider. SIGTERM and Ctrl-C end it
/// within ten seconds, a second one at once.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Configuration file [default: $CREDBROKER_CONFIG, ~/.config/credbroker/config.yaml,
    /// /etc/credbroker/config.yaml, the first that exists]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Socket to listen on [default: $CREDBROKER_SOCKET, `listen.socket` of the configuration,
    /// $XDG_RUNTIME_DIR/credbroker/credbroker.sock, /run/credbroker/credbroker.sock]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// How log lines look
    #[arg(long, value_enum, default_value_t)]
    log_format: LogFormat,
}

pub(super) fn run(args: &Args, environment: &Environment) -> anyhow::Result<u8> {
    // First of all: it reads and clears variables, which is sound only while there is one thread.
    let inherited = app::inherited_listener().context("the socket from systemd cannot be used")?;
    let (logs, problem) = app::start_telemetry(args.log_format, environment);
    if let Some(problem) = problem {
        warn!("{problem}");
    }
    let code = start(inherited, args, environment, &logs).unwrap_or_else(|error| {
        logs.line(&format!("credbroker: {error:#}"));
        1
    });
    logs.flush(LAST_WORDS);
    Ok(code)
}

/// To the end of the broker. What stops it before it serves goes through `logs` too: a pipe that is full must not keep
/// the process.
fn start(
    inherited: Option<UnixListener>,
    args: &Args,
    environment: &Environment,
    logs: &LogQueue,
) -> anyhow::Result<u8> {
    app::harden();
    let loaded = match config::load(args.config.as_deref(), environment) {
        Ok(loaded) => loaded,
        Err(error) => {
            for warning in &error.warnings {
                warn!("{warning}");
            }
            logs.line(&error.to_string());
            return Ok(EX_CONFIG);
        }
    };
    for warning in &loaded.warnings {
        warn!("{warning}");
    }
    info!(providers = loaded.config.providers.names().join(","), "configuration read from {}", loaded.source);
    let listening = match listening(inherited, args, &loaded, environment) {
        Ok(listening) => listening,
        Err((line, code)) => {
            logs.line(&line);
            return Ok(code);
        }
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("no threads")?;
    let code = runtime.block_on(serve(loaded.config, listening, Edges::system(environment)));
    // What a second signal left behind is not waited for.
    runtime.shutdown_background();
    code
}

/// Where to listen, or a line that says why not and the exit code.
fn listening(
    inherited: Option<UnixListener>,
    args: &Args,
    loaded: &Loaded,
    environment: &Environment,
) -> Result<Listening, (String, u8)> {
    let listen = &loaded.config.listen;
    if let Some(listener) = inherited {
        if args.socket.is_some() || *listen != Listen::default() {
            warn!("`--socket` and `listen` have no effect: the socket is systemd's; see its .socket unit");
        }
        return Ok(Listening::Inherited(listener));
    }
    let path = socket(args, &loaded.config, environment)
        .map_err(|error| (format!("credbroker: {error}"), Failure::from(error).exit_code()))?;
    app::socket_options(listen, &path)
        .map(Listening::At)
        .map_err(|error| (format!("{}: {error}", loaded.source), EX_CONFIG))
}

async fn serve(config: Config, listening: Listening, edges: Edges) -> anyhow::Result<u8> {
    let mut signals = Signals::catch().context("signals cannot be caught")?;
    let place = match &listening {
        Listening::At(options) => options.path.display().to_string(),
        Listening::Inherited(_) => "the socket that systemd passed".to_owned(),
    };
    let mut bound = app::build(config, listening, edges)?;
    info!("listening on {place}");
    Readiness::Ready.tell();
    let code = tokio::select! {
        task = bound.serve() => {
            error!("the {task} has ended, which the broker cannot do without: draining, then exiting with code 1");
            1
        }
        signal = signals.next() => {
            info!("{signal} received: draining; once more ends at once");
            0
        }
    };
    Readiness::Stopping.tell();
    tokio::select! {
        drained = bound.drain() => match drained {
            Drained::Whole => info!("drained"),
            Drained::CutOff { left } => warn!(left, "the grace period is over; what was left is cut off"),
        },
        signal = signals.next() => {
            warn!("{signal} received again: ending at once");
            return Ok(1);
        }
    }
    Ok(code)
}

/// Flag, then variable, then configuration, then the default place.
fn socket(args: &Args, config: &Config, environment: &Environment) -> Result<PathBuf, SocketError> {
    let variable = environment.get("CREDBROKER_SOCKET").filter(|value| !value.is_empty());
    if let (None, None, Some(configured)) = (&args.socket, variable, &config.listen.socket) {
        return Ok(configured.clone());
    }
    let socket = Socket::locate(&Locations {
        flag: args.socket.as_deref().map(Path::as_os_str),
        variable,
        runtime_directory: environment.get("XDG_RUNTIME_DIR"),
        is_root: rustix::process::geteuid().is_root(),
    })?;
    Ok(socket.candidates().next().unwrap_or(Path::new(Socket::SYSTEM)).to_owned())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    static BROKEN: AtomicBool = AtomicBool::new(true);

    /// Panics at its first use, which is the hub reader's.
    fn broken_jitter() -> f64 {
        assert!(!BROKEN.swap(false, Ordering::SeqCst), "broken on purpose");
        0.5
    }

    #[tokio::test]
    async fn a_task_that_panics_ends_the_process_with_exit_code_1() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("config.yaml");
        let hub = directory.path().join("hub.kubeconfig");
        let kubeconfig = r#"{"apiVersion":"v1","kind":"Config","current-context":"hub",
            "clusters":[{"name":"hub","cluster":{"server":"https://127.0.0.1:1"}}],
            "users":[{"name":"hub","user":{"token":"t"}}],
            "contexts":[{"name":"hub","context":{"cluster":"hub","user":"hub"}}]}"#;
        std::fs::write(&hub, kubeconfig).unwrap();
        let text = format!(
            r#"{{"apiVersion":"credbroker.io/v1alpha1","kind":"BrokerConfig","clusterProfiles":{{"kubeconfig":"{}"}},
            "providers":[{{"name":"p","execConfig":{{"apiVersion":"client.authentication.k8s.io/v1",
            "command":"/bin/false","interactiveMode":"Never"}}}}]}}"#,
            hub.display()
        );
        std::fs::write(&file, text).unwrap();
        let environment = Environment::default();
        let loaded = config::load(Some(&file), &environment).unwrap();
        let listening = Listening::At(
            app::socket_options(&loaded.config.listen, &directory.path().join("run/socket")).unwrap(),
        );
        let edges = Edges { jitter: broken_jitter, ..Edges::system(&environment) };
        assert_eq!(serve(loaded.config, listening, edges).await.unwrap(), 1);
        assert!(!BROKEN.load(Ordering::SeqCst));
    }
}
