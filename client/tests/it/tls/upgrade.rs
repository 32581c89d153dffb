//! Connections that are no longer HTTP: exec, attach and port-forward.

use http::header::{CONNECTION, UPGRADE};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, split},
    sync::oneshot,
    time::timeout,
};

use super::*;

#[tokio::test]
async fn an_upgraded_stream_that_two_tasks_share_ends_for_both_at_the_drain_deadline() {
    let mut pairs = Vec::new();
    let mut setting = Setting::new(Duration::from_secs(1), |api| {
        pairs = vec![pair(api, "x"), pair(api, "y")];
        issued("1", pairs.first(), None)
    })
    .await;
    let mut request = setting.request("/api/v1/namespaces/default/pods/p/exec");
    request.headers_mut().insert(CONNECTION, "upgrade".parse().unwrap());
    request.headers_mut().insert(UPGRADE, "echo".parse().unwrap());
    let response = setting.client.call(request).await.unwrap();
    assert_eq!(response.status(), StatusCode::SWITCHING_PROTOCOLS);
    let stream = TokioIo::new(hyper::upgrade::on(response).await.unwrap());
    let (mut from, mut to) = split(stream);

    to.write_all(b"x").await.unwrap();
    let (echoed, was_echoed) = oneshot::channel();
    let reader = tokio::spawn(async move {
        from.read_exact(&mut [0]).await.unwrap();
        echoed.send(()).unwrap();
        from.read_u8().await
    });
    was_echoed.await.unwrap(); // one thread: the reader waits for more by now
    let (cut, was_cut) = oneshot::channel::<()>();
    let writer = tokio::spawn(async move {
        to.flush().await.unwrap();
        was_cut.await.unwrap();
        to.write_all(b"y").await
    });
    tokio::task::yield_now().await; // the writer is the last to look at the stream
    setting.rotate(issued("2", pairs.get(1), None)).await;
    setting.get().await;
    let end = timeout(Duration::from_secs(30), reader).await.expect("the reader is woken");
    assert_eq!(end.unwrap().unwrap_err().kind(), std::io::ErrorKind::ConnectionAborted);
    cut.send(()).unwrap();
    assert_eq!(writer.await.unwrap().unwrap_err().kind(), std::io::ErrorKind::ConnectionAborted);
    setting.api.until_open(Some("x"), 0).await;
}
