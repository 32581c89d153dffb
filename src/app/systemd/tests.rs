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
        report(
            || UnixStream::connect(&path),
            Some(PERIOD),
            |notification| sender.send(notification.to_string()).unwrap(),
        )
        .await;
    });
    for _ in 0..3 {
        drop(listener.accept().await.unwrap());
    }
    assert!(notifications.try_recv().is_err(), "it has accepted three connections and answered none");
    tasks.spawn(answer(listener));
    assert_eq!(notifications.recv().await, Some("READY=1".to_owned()));
    for _ in 0..3 {
        assert_eq!(notifications.recv().await, Some("WATCHDOG=1".to_owned()));
    }
}
