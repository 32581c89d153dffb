//! One call on one connection: HTTP/2 without a runtime.
//!
//! `h2` works on a [`Wire`] in memory, so nothing wakes its futures. They are polled after each turn of the [`Link`].

use std::{
    future::Future,
    os::unix::net::UnixStream,
    pin::pin,
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use h2::client::{Builder, ResponseFuture};

use super::{
    attend::{Attend, attend},
    call::{ExchangeError, begin, lost},
    deadline::Deadline,
    grpc::{GET, MAX_RESPONSE, RawResponse, head, needs_person},
    link::Link,
    wire::Wire,
};

/// Room for a status whose message has the end of a plugin's stderr, in both of its headers.
const MAX_HEADERS: u32 = 256 * 1024;

/// What to call.
pub(super) enum Call<'a> {
    /// `GetCredential` with this message. If it takes long, the plugin run is attended too.
    Get(Bytes, Option<Attend<'a>>),
    /// `AttendCredential` alone.
    Attend(Attend<'a>),
}

/// Makes `call` and returns the response. The stream cannot be used afterwards. `is_own`: whether the broker may say what
/// this process runs.
pub(super) fn exchange(
    stream: &UnixStream,
    call: Call<'_>,
    deadline: &mut Deadline<'_>,
    is_own: &dyn Fn() -> bool,
) -> Result<RawResponse, ExchangeError> {
    let context = &mut Context::from_waker(Waker::noop());
    let wire = Wire::default();
    let mut settings = Builder::new();
    settings.enable_push(false).max_header_list_size(MAX_HEADERS);
    // The handshake only writes, and writes to memory do not wait.
    let Poll::Ready(handshake) = pin!(settings.handshake(wire.clone())).poll(context) else {
        return Err(ExchangeError::NotGrpc("HTTP/2 could not be started".into()));
    };
    let (mut requests, connection) = handshake.map_err(lost)?;
    let (mut connection, mut link) = (pin!(connection), Link::new(stream));
    let (message, attended) = match call {
        Call::Get(message, attended) => (message, attended),
        Call::Attend(attended) => {
            let link = (&mut link, &wire);
            return attend(attended, &mut requests, (connection, None), link, deadline, is_own);
        }
    };
    let response = begin(&mut requests, head(GET, Some(deadline.left())), message)?;
    let mut answer = pin!(received(response));
    let wake = attended.as_ref().map(|attended| attended.after);
    loop {
        let ended = connection.as_mut().poll(context);
        if let Poll::Ready(answer) = answer.as_mut().poll(context) {
            return match (answer, attended) {
                (Ok(answer), Some(attended)) if needs_person(&answer) && attended.lends(is_own) => {
                    let link = (&mut link, &wire);
                    attend(attended, &mut requests, (connection, None), link, deadline, is_own)
                }
                (answer, _) => answer,
            };
        }
        match ended {
            Poll::Ready(Ok(())) => return Err(ExchangeError::Lost("it was closed".into())),
            Poll::Ready(Err(error)) => return Err(lost(error)),
            Poll::Pending => {}
        }
        // Data that was read makes room for more, which the connection has to announce.
        if let Poll::Ready(Err(error)) = connection.as_mut().poll(context) {
            return Err(lost(error));
        }
        match attended {
            Some(attended) if attended.after <= deadline.passed() => {
                return attend(
                    attended,
                    &mut requests,
                    (connection, Some(answer)),
                    (&mut link, &wire),
                    deadline,
                    is_own,
                );
            }
            _ => link.turn(&wire, deadline, wake)?,
        }
    }
}

async fn received(response: ResponseFuture) -> Result<RawResponse, ExchangeError> {
    let (head, mut stream) = response.await.map_err(lost)?.into_parts();
    let mut body = Vec::new();
    while let Some(chunk) = stream.data().await {
        let chunk = chunk.map_err(lost)?;
        if body.len() + chunk.len() > MAX_RESPONSE {
            return Err(ExchangeError::NotGrpc(format!("the answer is longer than {MAX_RESPONSE} bytes")));
        }
        body.extend_from_slice(&chunk);
        stream.flow_control().release_capacity(chunk.len()).map_err(lost)?;
    }
    let trailers = stream.trailers().await.map_err(lost)?;
    Ok(RawResponse { http_status: head.status.as_u16(), headers: head.headers, body, trailers })
}

#[cfg(test)]
mod tests;
