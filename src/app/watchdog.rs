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
pub(super) async fn report(socket: &Path, period: Option<Duration>, notify: impl Fn(ServiceNotification)) {
    let turn = period.map_or(LONGEST, |period| period / 3);
    let mut is_ready = false;
    loop {
        match timeout(turn, call(socket)).await {
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

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http::Response;
    use hyper::{server, service::service_fn};
    use tokio::{net::UnixListener, sync::mpsc, task::JoinSet};

    use super::*;

    const PERIOD: Duration = Duration::from_millis(60);

    async fn answer(listener: UnixListener) {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let service = service_fn(async |_| Ok::<_, Infallible>(Response::new(Full::new(Bytes::new()))));
            let server = server::conn::http2::Builder::new(TokioExecutor::new());
            drop(server.serve_connection(TokioIo::new(stream), service).await);
        }
    }

    #[tokio::test]
    async fn a_broker_is_ready_when_it_has_answered_and_not_when_it_listens() {
        let directory = credbroker_test_support::private_directory();
        let path = directory.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let (sender, mut notifications) = mpsc::unbounded_channel();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            report(&path, Some(PERIOD), |notification| sender.send(notification).unwrap()).await;
        });
        for _ in 0..3 {
            drop(listener.accept().await.unwrap());
        }
        assert!(notifications.try_recv().is_err(), "it has accepted three connections and answered none");
        tasks.spawn(answer(listener));
        assert_eq!(notifications.recv().await, Some(ServiceNotification::Ready));
        for _ in 0..3 {
            assert_eq!(notifications.recv().await, Some(ServiceNotification::Watchdog));
        }
    }
}
