//! Where to listen.

use std::{
    os::unix::net::UnixListener,
    path::{Path, PathBuf},
};

use credbroker_client::{Socket, SocketError, SocketSources};
use credbroker_exec::Failure;
use tracing::warn;

use super::ServeArgs;
use crate::{
    app::{self, Listening, SocketSource},
    cli::EX_CONFIG,
};
use credbroker_config::{Listen, Loaded};
use credbroker_plugin::Environment;

/// Decides where to listen. The error is a line and an exit code.
pub(super) fn listening(
    inherited: Vec<(String, UnixListener)>,
    args: &ServeArgs,
    loaded: &Loaded,
    environment: &Environment,
) -> Result<Vec<Listening>, (String, u8)> {
    let listen = &loaded.config.listen;
    if !inherited.is_empty() {
        let has_effect = |listen: &Listen| Listen { name: Listen::default().name, ..listen.clone() };
        if args.socket.is_some() || listen.iter().any(|listen| has_effect(listen) != Listen::default()) {
            warn!(
                "`--socket` and `listen` have no effect besides `name`, because systemd provides the sockets; change their .socket units instead"
            );
        }
        return inherited.into_iter().map(|socket| from_systemd(socket, listen)).collect();
    }
    let first = socket(args, listen.first(), environment)
        .map_err(|error| (format!("credbroker: {error}"), Failure::from(error).exit_code()))?;
    let path = |number, listen: &Listen| match &listen.socket {
        Some(path) if number > 0 => path.clone(),
        _ => first.clone(),
    };
    let options = listen.iter().enumerate().map(|(listener, listen)| {
        let options = app::socket_options(listen, &path(listener, listen))?;
        Ok(Listening { listener, source: SocketSource::Publish(options) })
    });
    options
        .collect::<Result<_, app::BuildError>>()
        .map_err(|error| (format!("{}: {error}", loaded.source), EX_CONFIG))
}

/// A socket of systemd belongs to the listener with the name of the socket, or to the only listener.
pub(super) fn from_systemd(
    (name, socket): (String, UnixListener),
    listen: &[Listen],
) -> Result<Listening, (String, u8)> {
    let by_name = listen.iter().position(|listen| listen.name == name);
    let only = (listen.len() == 1).then_some(0);
    let Some(listener) = by_name.or(only) else {
        let names = listen.iter().map(|listen| listen.name.as_str()).collect::<Vec<_>>().join(", ");
        let line = format!(
            "credbroker: systemd passed a socket with the name `{name}`, but the listeners are {names}; set `FileDescriptorName=` in its .socket unit to one of them"
        );
        return Err((line, EX_CONFIG));
    };
    Ok(Listening { listener, source: SocketSource::Inherited(socket) })
}

pub(super) fn address(listening: &Listening) -> String {
    let path = listening.path().map(|path| path.display().to_string());
    path.unwrap_or_else(|| "the socket from systemd".to_owned())
}

/// The socket of the first listener: of the flag, else of the variable, else of the configuration, else the default one.
pub(super) fn socket(
    args: &ServeArgs,
    first: Option<&Listen>,
    environment: &Environment,
) -> Result<PathBuf, SocketError> {
    let variable = environment.get("CREDBROKER_SOCKET").filter(|value| !value.is_empty());
    if let (None, None, Some(configured)) =
        (&args.socket, variable, first.and_then(|first| first.socket.as_ref()))
    {
        return Ok(configured.clone());
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
