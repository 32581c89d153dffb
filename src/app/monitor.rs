//! Where metrics and health are served.

use std::{io, net::TcpListener as StdTcpListener};

use tokio::net::TcpListener;

use super::BuildError;
use crate::{
    config::MetricsAddress,
    server::{MonitorListener, Publication, SocketOptions, publish},
};

/// Permission bits of a Unix socket: the broker's user and group.
const MODE: u32 = 0o660;

/// An open listener.
#[derive(Debug)]
pub(super) struct MonitorSocket {
    pub(super) listener: MonitorListener,
    /// Removes the path of a Unix socket when it is dropped.
    pub(super) publication: Option<Publication>,
    /// For a log line.
    pub(super) address: String,
}

/// Listens at `address`. Must be called within a tokio runtime.
pub(super) fn listen(address: &MetricsAddress) -> Result<MonitorSocket, BuildError> {
    match address {
        MetricsAddress::Loopback(address) => {
            let failed = |source| BuildError::Metrics { address: address.to_string(), source };
            let (listener, address) = loopback(address).map_err(failed)?;
            Ok(MonitorSocket { listener, publication: None, address })
        }
        MetricsAddress::Unix(path) => {
            let options =
                SocketOptions { path: path.clone(), mode: MODE, group: None, shared_directory: false };
            let (listener, publication) = publish(&options)?;
            let address = format!("unix://{}", path.display());
            let failed = |source| BuildError::Metrics { address: address.clone(), source };
            let listener = MonitorListener::unix(listener).map_err(failed)?;
            Ok(MonitorSocket { listener, publication: Some(publication), address })
        }
    }
}

fn loopback(address: &std::net::SocketAddr) -> io::Result<(MonitorListener, String)> {
    let listener = StdTcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    let address = format!("http://{}", listener.local_addr()?);
    Ok((MonitorListener::Loopback(TcpListener::from_std(listener)?), address))
}
