//! Where metrics and health are served.

use std::{
    io,
    net::{SocketAddr, TcpListener as StdTcpListener},
    sync::Arc,
};

use tokio::net::TcpListener;
use tracing::info;

use super::BuildError;
use credbroker_config::MetricsAddress;
use credbroker_runner::ProcessRunner;
use credbroker_server::{Monitor, MonitorListener, MonitorParts, Publication, SocketOptions, publish};

/// Permission bits of a Unix socket: the broker's user and group.
const MODE: u32 = 0o660;

/// A monitor that listens but does not serve yet.
#[derive(Debug)]
pub(super) struct OpenMonitor {
    monitor: Arc<Monitor<ProcessRunner>>,
    listener: MonitorListener,
    /// Removes the path of a Unix socket when it is dropped.
    publication: Option<Publication>,
    /// For a log line.
    address: String,
}

impl OpenMonitor {
    /// Listens at `address`. Must be called within a tokio runtime.
    pub(super) fn at(
        address: &MetricsAddress,
        parts: MonitorParts<ProcessRunner>,
    ) -> Result<Self, BuildError> {
        let (listener, publication, address) = match address {
            MetricsAddress::Loopback(address) => {
                let failed = |source| BuildError::Metrics { address: address.to_string(), source };
                let (listener, address) = loopback(address).map_err(failed)?;
                (listener, None, address)
            }
            MetricsAddress::Unix(path) => {
                let (path, group, shared_directory) = (path.clone(), None, false);
                let address = format!("unix://{}", path.display());
                let (listener, publication) =
                    publish(&SocketOptions { path, mode: MODE, group, shared_directory })?;
                let failed = |source| BuildError::Metrics { address: address.clone(), source };
                (MonitorListener::unix(listener).map_err(failed)?, Some(publication), address)
            }
        };
        Ok(Self { monitor: Arc::new(Monitor::new(parts)), listener, publication, address })
    }

    /// Serves until the broker drains.
    pub(super) async fn serve(self) {
        let Self { monitor, listener, publication, address } = self;
        info!("serving metrics and health on {address}");
        monitor.run(listener).await;
        drop(publication);
    }
}

fn loopback(address: &SocketAddr) -> io::Result<(MonitorListener, String)> {
    let listener = StdTcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    let address = format!("http://{}", listener.local_addr()?);
    Ok((MonitorListener::Loopback(TcpListener::from_std(listener)?), address))
}
