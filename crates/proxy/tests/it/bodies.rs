//! Bodies of requests.

use std::convert::Infallible;

use bytes::Bytes;
use futures_util::stream;
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use hyper_util::rt::TokioIo;
use tokio::time::timeout;

use crate::setting::{SOON, Setting, post, status};

const MIB: usize = 1024 * 1024;

#[tokio::test]
async fn a_body_above_the_limit_is_refused_before_it_is_sent() {
    let setting = Setting::with_token();
    assert_eq!(setting.send(post(vec![b' '; 4 * MIB])).await.status(), StatusCode::CREATED);
    setting.api.forget_requests();
    let answer = setting.send(post(vec![b' '; 4 * MIB + 1])).await;
    assert_eq!(status(&answer)["message"], "credbroker: the body has more than 4 MiB");
    assert_eq!(answer.status(), StatusCode::PAYLOAD_TOO_LARGE);
    assert!(setting.api.requests().is_empty());
}

#[tokio::test]
async fn a_chunked_body_above_the_limit_is_refused_as_soon_as_it_is() {
    let setting = Setting::with_token();
    let (mut client, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(setting.stream())).await.unwrap();
    tokio::spawn(connection);
    let pieces = stream::repeat_with(|| Ok::<_, Infallible>(Frame::data(Bytes::from(vec![b' '; 64 * 1024]))));
    let request = post("").map(|_| StreamBody::new(Box::pin(pieces)));
    let answer = timeout(SOON, client.send_request(request)).await.expect("an answer").unwrap();
    assert_eq!(answer.status(), StatusCode::PAYLOAD_TOO_LARGE);
    assert!(setting.api.requests().is_empty());
}

#[tokio::test]
async fn a_body_streams_while_it_is_sent() {
    let setting = Setting::with_token();
    let (mut client, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(setting.stream())).await.unwrap();
    tokio::spawn(connection);
    let (pieces, body) = tokio::sync::mpsc::unbounded_channel::<Result<Frame<Bytes>, Infallible>>();
    let body = StreamBody::new(tokio_stream::wrappers::UnboundedReceiverStream::new(body));
    let request: Request<_> = post("").map(|_| body);
    let answer = client.send_request(request);
    let pieces = async move {
        for piece in ["{\"kind\":", " \"SelfSubjectReview\"}"] {
            pieces.send(Ok(Frame::data(piece.into()))).unwrap();
            tokio::task::yield_now().await;
        }
    };
    let (answer, ()) = timeout(SOON, async { tokio::join!(answer, pieces) }).await.expect("an answer");
    let answer = answer.unwrap();
    assert_eq!(answer.status(), StatusCode::CREATED);
    answer.into_body().collect().await.unwrap();
    assert_eq!(setting.api.requests()[0].body, "{\"kind\": \"SelfSubjectReview\"}");
}
