//! tonic's own client on a Unix socket.

use std::{io, path::Path};

use anyhow::Result;
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint};

/// A connection to the broker at `socket`.
pub async fn channel(socket: &Path) -> Result<Channel> {
    let socket = socket.to_owned();
    let connect = tower::service_fn(move |_| {
        let socket = socket.clone();
        async move { Ok::<_, io::Error>(TokioIo::new(UnixStream::connect(socket).await?)) }
    });
    Ok(Endpoint::from_static("http://localhost").connect_with_connector(connect).await?)
}
