//! `credbroker serve`.

use std::{
    io::Write as _,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use credbroker_client::{Locations, Socket, SocketError};
use credbroker_exec::Failure;
use tracing::{info, warn};

use super::EX_CONFIG;
use crate::{
    app::{self, Drained, Edges, Listening, LogFormat, Readiness, Signals},
    config::{self, Config, Listen},
    plugin::Environment,
};

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
    if let Some(problem) = app::start_telemetry(args.log_format, environment) {
        warn!("{problem}");
    }
    app::harden();
    let loaded = match config::load(args.config.as_deref(), environment) {
        Ok(loaded) => loaded,
        Err(error) => {
            for warning in &error.warnings {
                warn!("{warning}");
            }
            let _unheard = writeln!(std::io::stderr(), "{error}");
            return Ok(EX_CONFIG);
        }
    };
    for warning in &loaded.warnings {
        warn!("{warning}");
    }
    info!(providers = loaded.config.providers.names().join(","), "configuration read from {}", loaded.source);
    let listening = if let Some(listener) = inherited {
        if args.socket.is_some() || loaded.config.listen != Listen::default() {
            warn!("`--socket` and `listen` have no effect: the socket is systemd's; see its .socket unit");
        }
        Listening::Inherited(listener)
    } else {
        let path = match socket(args, &loaded.config, environment) {
            Ok(path) => path,
            Err(error) => {
                let _unheard = writeln!(std::io::stderr(), "credbroker: {error}");
                return Ok(Failure::from(error).exit_code());
            }
        };
        match app::socket_options(&loaded.config.listen, &path) {
            Ok(options) => Listening::At(options),
            Err(error) => {
                let _unheard = writeln!(std::io::stderr(), "{}: {error}", loaded.source);
                return Ok(EX_CONFIG);
            }
        }
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("no threads")?;
    let code = runtime.block_on(serve(loaded.config, listening, Edges::system(environment)));
    // What a second signal left behind is not waited for.
    runtime.shutdown_background();
    code
}

async fn serve(config: Config, listening: Listening, edges: Edges) -> anyhow::Result<u8> {
    let mut signals = Signals::catch().context("signals cannot be caught")?;
    let place = match &listening {
        Listening::At(options) => options.path.display().to_string(),
        Listening::Inherited(_) => "the socket that systemd passed".to_owned(),
    };
    let bound = app::build(config, listening, edges)?;
    info!("listening on {place}");
    Readiness::Ready.tell();
    let signal = tokio::select! {
        () = bound.serve() => "nothing", // it serves until it drains
        signal = signals.next() => signal,
    };
    Readiness::Stopping.tell();
    info!("{signal} received: draining; once more ends at once");
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
    Ok(0)
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
