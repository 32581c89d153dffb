//! One call on one connection: HTTP/2 without a runtime.
//!
//! `h2` works on a [`Wire`] in memory, so nothing wakes its futures. They are polled after each turn of the [`Link`].

use std::{
    fmt::Display,
    future::Future,
    os::unix::net::UnixStream,
    pin::pin,
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use h2::client::{Builder, ResponseFuture, SendRequest};
use http::Request;

use super::{
    attend::{Attend, attend},
    deadline::Deadline,
    error::ExchangeError,
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

/// Begins a call. Dropping the response cancels it.
pub(super) fn begin(
    requests: &mut SendRequest<Bytes>,
    head: Request<()>,
    message: Bytes,
) -> Result<ResponseFuture, ExchangeError> {
    let (response, mut body) = requests.send_request(head, false).map_err(lost)?;
    body.send_data(message, true).map_err(lost)?;
    Ok(response)
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

pub(super) fn lost(error: impl Display) -> ExchangeError {
    ExchangeError::Lost(error.to_string())
}

#[cfg(test)]
mod tests {
    use std::{io::Read, net::Shutdown, os::fd::OwnedFd, thread, time::Duration};

    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];
    const ACKNOWLEDGEMENT: &[u8] = &[0, 0, 0, 4, 1, 0, 0, 0, 0];
    const LONG: Duration = Duration::from_secs(600);

    /// Two sockets on which each read returns the bytes of one write. Ours does not block.
    fn pair() -> (UnixStream, UnixStream) {
        let flags = SocketFlags::CLOEXEC;
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        let [ours, theirs] = [ours, theirs].map(|socket: OwnedFd| UnixStream::from(socket));
        ours.set_nonblocking(true).unwrap();
        (ours, theirs)
    }

    fn written(theirs: &mut UnixStream) -> Vec<u8> {
        let mut bytes = vec![0; 64 * 1024];
        let count = theirs.read(&mut bytes).unwrap();
        bytes.truncate(count);
        bytes
    }

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let length = u8::try_from(payload.len()).unwrap();
        [&[0, 0, length, kind, flags, 0, 0, 0, 1], payload].concat()
    }

    /// HEADERS with `:status: 200`, DATA, and HEADERS with `grpc-status: 0`.
    fn answer(body: &[u8]) -> Vec<u8> {
        let trailers = [b"\x00\x0bgrpc-status", &b"\x010"[..]].concat();
        [frame(1, 4, &[0x88]), frame(0, 0, body), frame(1, 4 | 1, &trailers)].concat()
    }

    fn send(theirs: &UnixStream, bytes: &[u8]) {
        assert_eq!(rustix::io::write(theirs, bytes), Ok(bytes.len()));
    }

    fn asked(ours: UnixStream) -> thread::JoinHandle<Result<RawResponse, ExchangeError>> {
        let message = Bytes::from_static(b"\0\0\0\0\x03abc");
        thread::spawn(move || {
            let mut deadline = Deadline::starting_now(LONG, None);
            exchange(&ours, Call::Get(message, None), &mut deadline, &|| false)
        })
    }

    #[test]
    fn the_whole_request_is_one_write_and_the_response_needs_no_other() {
        let (ours, mut theirs) = pair();
        let asking = asked(ours);
        let request = written(&mut theirs);
        assert!(request.starts_with(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), "{request:?}");
        assert!(request.ends_with(&frame(0, 1, b"\0\0\0\0\x03abc")), "{request:?}");
        send(&theirs, &[SETTINGS, ACKNOWLEDGEMENT, &answer(b"body")].concat());
        let answer = asking.join().unwrap().unwrap();
        assert_eq!((answer.http_status, answer.body.as_slice()), (200, &b"body"[..]));
        assert_eq!(answer.trailers.unwrap()["grpc-status"], "0");
        assert!(written(&mut theirs).is_empty(), "nothing but the end");
    }

    #[test]
    fn the_servers_settings_are_acknowledged_when_the_answer_takes_long() {
        let (ours, mut theirs) = pair();
        let asking = asked(ours);
        written(&mut theirs);
        send(&theirs, SETTINGS);
        assert_eq!(written(&mut theirs), ACKNOWLEDGEMENT);
        for part in answer(b"in pieces").chunks(3) {
            send(&theirs, part);
        }
        assert_eq!(asking.join().unwrap().unwrap().body, b"in pieces");
    }

    #[test]
    fn an_end_before_the_answer_is_a_lost_connection() {
        for sent in [&b""[..], SETTINGS, &answer(b"body")[..20]] {
            let (ours, mut theirs) = pair();
            let asking = asked(ours);
            written(&mut theirs);
            if !sent.is_empty() {
                send(&theirs, sent);
            }
            theirs.shutdown(Shutdown::Both).unwrap();
            let ended = asking.join().unwrap();
            assert!(matches!(ended, Err(ExchangeError::Lost(_))), "{sent:?}: {ended:?}");
        }
    }
}
