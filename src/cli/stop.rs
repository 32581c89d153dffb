//! `credbroker stop` and `credbroker restart`.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
    thread::sleep,
    time::Duration,
};

use anyhow::Context as _;
use credbroker_client::{Client, Socket, paths::locks};
use credbroker_exec::{Failure, Starter, running};
use rustix::fs::OFlags;

use super::{
    broker::{BrokerArgs, SocketArg},
    console::Console,
    programs,
};
use crate::app;
use credbroker_observe::clock::{Clock as _, SystemClock};
use credbroker_plugin::Environment;

const SERVICE: &str = "credbroker.service";
/// Longer than a broker drains.
pub(super) const END: Duration = Duration::from_secs(15);
const START: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(50);

/// Stop the running broker
///
/// The broker ends its plugin runs and evicts all credentials, within ten seconds. If systemd runs the broker, this command
/// runs `systemctl --user stop credbroker.service`. After `credbroker setup`, the next client starts it again.
#[derive(Debug, clap::Args)]
#[command(mut_arg("broker_uid", |arg| arg.hide(true)))]
pub(super) struct StopArgs {
    #[command(flatten)]
    socket: SocketArg,
}

pub(super) fn stop(args: &StopArgs, console: &mut Console<'_>) -> anyhow::Result<u8> {
    let (environment, socket) = (console.environment, args.socket.locate(console.environment)?);
    if args.socket.path.is_none() && is_managed(environment) {
        programs::manage(&["stop", SERVICE], environment)?;
    } else {
        // Of the user's own broker and the machine's, the own one.
        let own = socket.candidates().next().map_or_else(|| socket.clone(), Socket::at);
        if !end(&own)? {
            writeln!(console.out, "No broker runs on {own}.")?;
            return Ok(0);
        }
    }
    writeln!(console.out, "Stopped.")?;
    Ok(0)
}

pub(super) fn restart(console: &mut Console<'_>) -> anyhow::Result<u8> {
    let environment = console.environment;
    let (is_managed, socket) = (is_managed(environment), SocketArg::default().locate(environment)?);
    let starter = Starter::of(false, &(&environment.0).into()).filter(|_| !is_managed);
    let can_start = starter.as_ref().map(Starter::can_start).transpose().map_err(Failure::from)?;
    anyhow::ensure!(
        is_managed || can_start == Some(true),
        "the broker cannot be restarted: `credbroker setup` did not record how it is started; run `credbroker stop`, and start it as before"
    );
    let _restarts = socket.candidates().next().and_then(|path| locked(path).ok());
    if is_managed {
        programs::manage(&["restart", SERVICE], environment)?;
    } else if let Some(starter) = starter {
        end(&starter.own_socket())?;
        start(&starter, environment)?;
    }
    writeln!(console.out, "Restarted.")?;
    Ok(0)
}

/// Whether systemd runs the broker of this user.
fn is_managed(environment: &Environment) -> bool {
    let units = ["is-active", "--quiet", SERVICE, "credbroker.socket"];
    environment.set("CREDBROKER_SOCKET").is_none()
        && programs::systemctl(&units, environment).is_some_and(|ran| ran.succeeded)
}

/// Clients that find no broker wait while it is held, and do not run their plugins themselves.
fn locked(socket: &Path) -> io::Result<File> {
    let [_, path] = locks(socket);
    let mut options = OpenOptions::new();
    options.append(true).create(true).mode(0o600).custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
    let file = options.open(path)?;
    file.try_lock()?;
    Ok(file)
}

/// Returns whether one ran.
fn end(socket: &Socket) -> anyhow::Result<bool> {
    let ended = app::terminate(|| running(socket), END);
    let ended = ended.with_context(|| {
        format!("the broker on {socket} cannot be stopped; only its user and root can stop it")
    })?;
    if let (Some(false), Some(process)) = (ended, running(socket)) {
        anyhow::bail!("the broker did not end within {} s; run `kill -9 {process}`", END.as_secs());
    }
    Ok(ended.is_some())
}

/// Returns when the broker answers.
fn start(starter: &Starter, environment: &Environment) -> anyhow::Result<()> {
    let until = SystemClock.now().boot + START;
    loop {
        // A client may have started it already.
        starter.start().map_err(Failure::from)?;
        let ask = async |client: Client| client.is_serving(None).await;
        match BrokerArgs::default().try_ask(environment, ask)? {
            Ok(_) => return Ok(()),
            Err(failure) if SystemClock.now().boot >= until => return Err(failure.into()),
            Err(_) => sleep(PAUSE),
        }
    }
}
