//! The beginning of a connection, until its peer makes a call: without the state of HTTP/2, which takes 40 KiB.
//!
//! Until then the broker sends what hyper would send. With the first call hyper takes over: it reads all that the peer
//! has sent, and its own first frames are left out, because the peer has them. If the first call is there at once, as
//! that of the shim, these frames wait for its answer, so that the peer wakes once and reads once.

mod greeted;

use std::{io, pin::pin, sync::LazyLock, task::Poll, time::Duration};

use futures_util::poll;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    time::timeout,
};

pub(crate) use self::greeted::Greeted;
use super::settings::{CONNECTION_WINDOW, FRAME, HEADERS as HEADER_LIST, STREAM_WINDOW, STREAMS};

/// Time from accept to the end of the peer's first SETTINGS frame.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// Bytes to read at a time: the first call of most peers is shorter.
const READ: usize = 1024;
/// The most bytes that are kept before hyper takes over: a preface, a frame, and some more.
const HELD: usize = FRAME as usize + READ;

const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Bytes of the head of a frame.
const HEAD: usize = 9;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const WINDOW_UPDATE: u8 = 8;
const ACKNOWLEDGES: u8 = 1;

/// What hyper sends first: its SETTINGS; and with the peer's SETTINGS, the acknowledgement and a larger window.
static SAID: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let settings = [(3_u16, STREAMS), (4, STREAM_WINDOW), (5, FRAME), (6, HEADER_LIST)];
    let settings = settings.map(|(id, value)| [id.to_be_bytes().as_slice(), &value.to_be_bytes()].concat());
    let window = (CONNECTION_WINDOW - FIRST_WINDOW).to_be_bytes();
    [
        frame(SETTINGS, 0, &settings.concat()),
        frame(SETTINGS, ACKNOWLEDGES, &[]),
        frame(WINDOW_UPDATE, 0, &window),
    ]
    .concat()
});
/// Bytes of the first frame in it.
const OWN_SETTINGS: usize = HEAD + 4 * 6;
/// The window of a new connection.
const FIRST_WINDOW: u32 = 65_535;
/// Ends a connection without a call: no stream was accepted.
pub(crate) const GOAWAY: [u8; 17] = [0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// A frame of the whole connection.
fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
    let length = u8::try_from(payload.len()).unwrap_or(u8::MAX);
    [&[0, 0, length, kind, flags, 0, 0, 0, 0], payload].concat()
}

/// A connection whose peer has made a call.
#[derive(Debug)]
pub(crate) struct Greeting {
    /// All that the peer has sent.
    heard: Vec<u8>,
    /// The frames that hyper sends again, and that are left out.
    said: &'static [u8],
    /// Whether the peer does not have these frames yet.
    is_held_back: bool,
}

/// Greets the peer, and returns when it has made a call, or has sent what only hyper can judge.
///
/// # Errors
///
/// The peer did not finish its own greeting in time, or has closed the connection.
pub(crate) async fn greet<S>(stream: &mut S) -> io::Result<Greeting>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut heard = Vec::new();
    let said: &'static [u8] = &SAID;
    let (own_settings, reply) = said.split_at(OWN_SETTINGS);
    if let Poll::Ready(sent_before) = poll!(pin!(hear(stream, &mut heard))) {
        sent_before?;
    }
    if judge(&heard) == Heard::Call {
        return Ok(Greeting { heard, said, is_held_back: true });
    }
    let hello = async {
        stream.write_all(own_settings).await?;
        while judge(&heard) == Heard::Part {
            hear(stream, &mut heard).await?;
        }
        Ok::<_, io::Error>(())
    };
    timeout(HANDSHAKE, hello).await.unwrap_or_else(|_late| Err(io::ErrorKind::TimedOut.into()))?;
    if judge(&heard) != Heard::Hello {
        return Ok(Greeting { heard, said: own_settings, is_held_back: false });
    }
    // So little that the socket takes it at once.
    stream.write_all(reply).await?;
    while judge(&heard) == Heard::Hello {
        heard.shrink_to_fit();
        hear(stream, &mut heard).await?;
    }
    Ok(Greeting { heard, said, is_held_back: false })
}

async fn hear(stream: &mut (impl AsyncRead + Unpin), heard: &mut Vec<u8>) -> io::Result<()> {
    heard.reserve_exact(READ);
    match stream.read_buf(heard).await? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(()),
    }
}

/// What a peer has sent so far.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Heard {
    /// A part of its preface and SETTINGS.
    Part,
    /// These, and nothing else that needs an answer.
    Hello,
    /// These, and then the beginning of a call.
    Call,
    /// Something else that needs an answer, or no HTTP/2.
    More,
}

fn judge(heard: &[u8]) -> Heard {
    let Some((preface, mut frames)) = heard.split_at_checked(PREFACE.len()) else {
        return if PREFACE.starts_with(heard) { Heard::Part } else { Heard::More };
    };
    if preface != PREFACE || heard.len() > HELD {
        return Heard::More;
    }
    let mut so_far = Heard::Part;
    while let Some((head, rest)) = frames.split_first_chunk::<HEAD>() {
        let [high, middle, low, kind, flags, stream @ ..] = *head;
        let needs_no_answer = match (so_far, kind) {
            (Heard::Part, SETTINGS) => flags & ACKNOWLEDGES == 0,
            (Heard::Hello, SETTINGS) => flags & ACKNOWLEDGES != 0,
            (Heard::Hello, WINDOW_UPDATE) => stream == [0; 4],
            _ => false,
        };
        let length = u32::from_be_bytes([0, high, middle, low]);
        if !needs_no_answer || length > FRAME {
            let is_call = so_far == Heard::Hello && kind == HEADERS && length <= FRAME;
            return if is_call { Heard::Call } else { Heard::More };
        }
        let Some((_, after)) = rest.split_at_checked(length as usize) else { break };
        (frames, so_far) = (after, Heard::Hello);
    }
    so_far
}

#[cfg(test)]
mod tests;
