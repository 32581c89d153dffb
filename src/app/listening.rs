//! Where the broker listens: on sockets that it publishes, or on those that systemd holds.

use std::{
    os::unix::net::UnixListener as StdListener,
    path::{Path, PathBuf},
    sync::Arc,
};

use tokio::{net::UnixListener, sync::watch};

use super::BuildError;
use credbroker_config::{Listen, group_id};
use credbroker_server::{Keeper, SocketOptions, SocketOrigin, publish};

/// One socket to listen on.
#[derive(Debug)]
pub struct Listening {
    /// Which listener of the configuration it belongs to, counted from 0.
    pub listener: usize,
    /// Where the socket comes from.
    pub source: SocketSource,
}

/// Where a socket comes from.
#[derive(Debug)]
pub enum SocketSource {
    /// The broker publishes it.
    Publish(SocketOptions),
    /// systemd passed it.
    Inherited(StdListener),
}

impl Listening {
    /// Publishes a socket for the only listener, or the first one.
    pub fn at(options: SocketOptions) -> Self {
        Self { listener: 0, source: SocketSource::Publish(options) }
    }

    /// The path of a socket that the broker publishes.
    pub fn path(&self) -> Option<&Path> {
        match &self.source {
            SocketSource::Publish(options) => Some(&options.path),
            SocketSource::Inherited(_) => None,
        }
    }

    pub(super) fn open(self) -> Result<OpenSocket, BuildError> {
        let (socket, path, origin) = match self.source {
            SocketSource::Inherited(socket) => {
                let address = socket.local_addr().map_err(BuildError::Listen)?;
                let path = address.as_pathname().map(Path::to_owned);
                (socket, path.clone(), path.map(SocketOrigin::Inherited))
            }
            SocketSource::Publish(options) => {
                let (socket, publication) = publish(&options)?;
                (socket, Some(options.path), Some(SocketOrigin::Published(publication)))
            }
        };
        socket.set_nonblocking(true).map_err(BuildError::Listen)?;
        let socket = UnixListener::from_std(socket).map_err(BuildError::Listen)?;
        Ok(OpenSocket {
            listener: self.listener,
            path,
            is_inherited: !matches!(origin, Some(SocketOrigin::Published(_))),
            keeper: origin.map(Keeper::new),
            newest: watch::Sender::new(Arc::new(socket)),
        })
    }
}

/// A socket that is open.
#[derive(Debug)]
pub(super) struct OpenSocket {
    pub(super) listener: usize,
    pub(super) path: Option<PathBuf>,
    /// Whether systemd holds it too.
    pub(super) is_inherited: bool,
    /// `None`: the socket is systemd's and has no name.
    pub(super) keeper: Option<Keeper>,
    /// The newest is in use.
    pub(super) newest: watch::Sender<Arc<UnixListener>>,
}

/// The options of a socket at `path` under `listen` of the configuration.
pub fn socket_options(listen: &Listen, path: &Path) -> Result<SocketOptions, BuildError> {
    let group = match &listen.group {
        None => None,
        Some(name) => Some(group_id(name).ok_or_else(|| BuildError::UnknownGroup { name: name.clone() })?),
    };
    let path = std::path::absolute(path).unwrap_or_else(|_| PathBuf::from(path));
    Ok(SocketOptions { path, mode: listen.mode, group, shared_directory: listen.shared_directory })
}
