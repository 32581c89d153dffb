//! The watchdog of systemd, which restarts a broker that does not answer.

use std::{io, path::Path, time::Duration};

use bytes::Bytes;
use http::{Request, header::CONTENT_TYPE};
use http_body_util::Full;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::{
    net::UnixStream,
    time::{sleep, timeout},
};
use tracing::warn;

use super::systemd::ServiceNotification;

const CHECK: &str = "http://localhost/grpc.health.v1.Health/Check";
/// An empty message: the health of the broker itself.
const EMPTY: &[u8] = &[0; 5];

/// Notifies systemd as long as the broker answers a call on its own socket. `period` is the time after which systemd
/// restarts a broker without notifications.
pub(super) async fn feed(socket: &Path, period: Duration) {
    let turn = period / 3;
    loop {
        match timeout(turn, call(socket)).await {
            Ok(Ok(())) => ServiceNotification::Watchdog.notify(),
            Ok(Err(error)) => {
                warn!(%error, "the broker cannot call itself; systemd restarts it if that lasts");
            }
            Err(_late) => warn!("the broker does not answer itself; systemd restarts it if that lasts"),
        }
        sleep(turn).await;
    }
}

/// Calls the broker as a client does. Any answer is an answer: one that refuses the call for lack of room, too.
async fn call(socket: &Path) -> io::Result<()> {
    let stream = TokioIo::new(UnixStream::connect(socket).await?);
    let (mut sender, connection) =
        http2::handshake(TokioExecutor::new(), stream).await.map_err(io::Error::other)?;
    let request = Request::post(CHECK).header(CONTENT_TYPE, "application/grpc");
    let request = request.body(Full::new(Bytes::from_static(EMPTY))).map_err(io::Error::other)?;
    tokio::select! {
        answer = sender.send_request(request) => answer.map(drop).map_err(io::Error::other),
        ended = connection => {
            ended.map_err(io::Error::other)?;
            Err(io::ErrorKind::ConnectionAborted.into())
        }
    }
}
