//! The sockets of the broker: those that it publishes for callers, those that systemd holds, and that of metrics and health.

use std::{
    net::TcpListener as StdTcpListener,
    os::unix::net::UnixListener as StdListener,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::Context as _;
use tokio::{
    net::{TcpListener, UnixListener},
    sync::watch,
};
use tracing::info;

use credbroker_config::{Listen, MetricsAddress, group_id};
use credbroker_runner::ProcessRunner;
use credbroker_server::{Monitor, MonitorListener, Reach};
use credbroker_uds_server::{Keeper, SocketOptions, SocketOrigin, publish};

/// One socket to listen on.
#[derive(Debug)]
pub struct Listening {
    /// Which listener of the configuration it belongs to, counted from 0.
    pub listener: usize,
    /// Where the socket comes from.
    pub source: SocketSource,
    /// The variable of the environment that names its path in the place of the configuration.
    pub variable: Option<&'static str>,
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
        Self { listener: 0, source: SocketSource::Publish(options), variable: None }
    }

    /// The path of a socket that the broker publishes.
    pub fn path(&self) -> Option<&Path> {
        match &self.source {
            SocketSource::Publish(options) => Some(&options.path),
            SocketSource::Inherited(_) => None,
        }
    }

    pub(super) fn open(self) -> anyhow::Result<OpenSocket> {
        let (socket, path, origin) = match self.source {
            SocketSource::Inherited(socket) => {
                let address = socket.local_addr().context(UNUSABLE)?;
                let path = address.as_pathname().map(Path::to_owned);
                (socket, path.clone(), path.map(SocketOrigin::Inherited))
            }
            SocketSource::Publish(options) => {
                let published = publish(&options).map_err(anyhow::Error::from);
                let (socket, publication) = match self.variable {
                    Some(variable) => published.with_context(|| format!("{variable} names the socket"))?,
                    None => published?,
                };
                (socket, Some(options.path), Some(SocketOrigin::Published(publication)))
            }
        };
        socket.set_nonblocking(true).context(UNUSABLE)?;
        let socket = UnixListener::from_std(socket).context(UNUSABLE)?;
        Ok(OpenSocket {
            listener: self.listener,
            path,
            is_inherited: !matches!(origin, Some(SocketOrigin::Published(_))),
            keeper: origin.map(Keeper::new),
            newest: watch::Sender::new(Arc::new(socket)),
        })
    }
}

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
pub fn socket_options(listen: &Listen, path: &Path) -> anyhow::Result<SocketOptions> {
    let id = |name: &String| {
        let unknown =
            || format!("`listen.group`: group `{name}` not found on this machine; see `getent group`");
        group_id(name).with_context(unknown)
    };
    let group = listen.group.as_ref().map(id).transpose()?;
    let path = std::path::absolute(path).unwrap_or_else(|_| PathBuf::from(path));
    Ok(SocketOptions { path, mode: listen.mode, group, shared_directory: listen.shared_directory })
}

const UNUSABLE: &str = "cannot listen on the socket";
/// Permission bits of a Unix socket: the broker's user and group.
const MODE: u32 = 0o660;

pub(super) fn reach(address: &MetricsAddress) -> Reach {
    match address {
        MetricsAddress::Loopback(_) => Reach::Machine,
        MetricsAddress::Pod(_) => Reach::Network,
        MetricsAddress::Unix(_) => Reach::Admitted,
    }
}

/// Listens at `address`, and serves metrics and health there until the broker drains. Must be called within a tokio
/// runtime.
pub(super) fn serve_metrics(
    address: &MetricsAddress,
    monitor: Monitor<ProcessRunner>,
) -> anyhow::Result<impl Future<Output = ()> + Send + 'static> {
    let (listener, publication, address) = match address {
        MetricsAddress::Loopback(address) | MetricsAddress::Pod(address) => {
            let listener = StdTcpListener::bind(address);
            let listener = listener.with_context(|| format!("cannot serve metrics on {address}"))?;
            listener.set_nonblocking(true).context(UNUSABLE)?;
            let address = format!("http://{}", listener.local_addr().context(UNUSABLE)?);
            let listener = TcpListener::from_std(listener).context(UNUSABLE)?;
            (MonitorListener::Left(listener), None, address)
        }
        MetricsAddress::Unix(path) => {
            let (address, path) = (format!("unix://{}", path.display()), path.clone());
            let options = SocketOptions { path, mode: MODE, group: None, shared_directory: false };
            let (listener, publication) = publish(&options)?;
            listener.set_nonblocking(true).context(UNUSABLE)?;
            let listener = UnixListener::from_std(listener).context(UNUSABLE)?;
            (MonitorListener::Right(listener), Some(publication), address)
        }
    };
    Ok(async move {
        info!("serving metrics and health on {address}");
        Arc::new(monitor).run(listener).await;
        // Removes the path of a Unix socket.
        drop(publication);
    })
}
