//! Calls of the broker to itself, for systemd: it waits for the first answer, and restarts a broker that does not answer.

use std::{future::pending, io, mem, path::Path, time::Duration};

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
use credbroker_server::Acceptor;

const CHECK: &str = "http://localhost/grpc.health.v1.Health/Check";
/// An empty message: the health of the broker itself.
const EMPTY: &[u8] = &[0; 5];

/// Time for an answer if systemd sets no limit.
const LONGEST: Duration = Duration::from_secs(20);
/// Time between two calls of a broker that has not answered one yet.
const SOON: Duration = Duration::from_secs(1);

/// Notifies systemd that the broker is ready when it has answered a call on its own socket; and from then on, three times
/// in `period`, that it still answers. `period` is the time after which systemd restarts a broker without notifications;
/// `None`: it does not.
pub(super) async fn report<F: Future<Output = io::Result<UnixStream>>>(
    connect: impl Fn() -> F,
    period: Option<Duration>,
    notify: impl Fn(ServiceNotification),
) {
    let turn = period.map_or(LONGEST, |period| period / 3);
    let mut is_ready = false;
    loop {
        match timeout(turn, async { call(connect().await?).await }).await {
            Ok(Ok(())) => {
                if !mem::replace(&mut is_ready, true) {
                    notify(ServiceNotification::Ready);
                }
                if period.is_none() {
                    return pending().await;
                }
                notify(ServiceNotification::Watchdog);
            }
            Ok(Err(error)) => {
                warn!(%error, "the broker cannot call itself; systemd restarts it if that lasts");
            }
            Err(_late) => warn!("the broker does not answer itself; systemd restarts it if that lasts"),
        }
        sleep(if is_ready { turn } else { turn.min(SOON) }).await;
    }
}

/// Connects as a client does. The socket of a system service may be for other users only: then the acceptor gets the
/// connection directly.
pub(super) async fn connect(socket: Option<&Path>, acceptor: &Acceptor) -> io::Result<UnixStream> {
    match socket {
        Some(socket) => match UnixStream::connect(socket).await {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => acceptor.connect(),
            connected => connected,
        },
        None => acceptor.connect(),
    }
}

/// Calls the broker. Any answer is an answer: one that refuses the call for lack of room, too.
async fn call(stream: UnixStream) -> io::Result<()> {
    let (mut sender, connection) =
        http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.map_err(io::Error::other)?;
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

#[cfg(test)]
mod tests;
