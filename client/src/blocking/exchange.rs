//! One call on one connection: HTTP/2 without a runtime.
//!
//! `h2` works on a [`Wire`] in memory, so its futures are never woken: they are polled again after each turn of the
//! [`Link`].

use std::{
    fmt::Display,
    future::Future,
    os::unix::net::UnixStream,
    pin::pin,
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use h2::client::{Builder, ResponseFuture};

use super::{
    Broken,
    deadline::Deadline,
    grpc::{Answer, LONGEST_ANSWER, head},
    link::Link,
    wire::Wire,
};

/// Room for a status whose message has the tail of a plugin's stderr, in both of its headers.
const LONGEST_HEADERS: u32 = 256 * 1024;

/// Sends `message` and gives back what comes. The stream is of no use afterwards.
pub(super) fn exchange(
    stream: &UnixStream,
    message: Bytes,
    deadline: &mut Deadline<'_>,
) -> Result<Answer, Broken> {
    let context = &mut Context::from_waker(Waker::noop());
    let wire = Wire::default();
    let mut settings = Builder::new();
    settings.enable_push(false).max_header_list_size(LONGEST_HEADERS);
    // Only writes: in memory there is nothing that it could wait for.
    let Poll::Ready(handshake) = pin!(settings.handshake(wire.clone())).poll(context) else {
        return Err(Broken::NotGrpc("HTTP/2 could not be started".into()));
    };
    let (mut requests, connection) = handshake.map_err(lost)?;
    let (response, mut body) = requests.send_request(head(deadline.left()), false).map_err(lost)?;
    body.send_data(message, true).map_err(lost)?;

    let (mut connection, mut answer) = (pin!(connection), pin!(received(response)));
    let mut link = Link::new(stream);
    loop {
        let ended = connection.as_mut().poll(context);
        if let Poll::Ready(answer) = answer.as_mut().poll(context) {
            return answer;
        }
        match ended {
            Poll::Ready(Ok(())) => return Err(Broken::Lost("it was closed".into())),
            Poll::Ready(Err(error)) => return Err(lost(error)),
            Poll::Pending => {}
        }
        // What was received makes room for more, and that has to be said.
        if let Poll::Ready(Err(error)) = connection.as_mut().poll(context) {
            return Err(lost(error));
        }
        link.turn(&wire, deadline)?;
    }
}

async fn received(response: ResponseFuture) -> Result<Answer, Broken> {
    let (head, mut stream) = response.await.map_err(lost)?.into_parts();
    let mut body = Vec::new();
    while let Some(chunk) = stream.data().await {
        let chunk = chunk.map_err(lost)?;
        if body.len() + chunk.len() > LONGEST_ANSWER {
            return Err(Broken::NotGrpc(format!("the answer is longer than {LONGEST_ANSWER} bytes")));
        }
        body.extend_from_slice(&chunk);
        stream.flow_control().release_capacity(chunk.len()).map_err(lost)?;
    }
    let trailers = stream.trailers().await.map_err(lost)?;
    Ok(Answer { http_status: head.status.as_u16(), headers: head.headers, body, trailers })
}

fn lost(error: impl Display) -> Broken {
    Broken::Lost(error.to_string())
}
