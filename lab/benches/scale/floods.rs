//! Floods of one process: requests that do not end, answers that are not read, calls that are denied.

use std::{
    collections::VecDeque,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
};

use anyhow::Result;
use bytes::Bytes;
use h2::{
    SendStream,
    client::{Builder, ResponseFuture, SendRequest},
};
use http::Request;
use prost::Message as _;
use tokio::net::UnixStream;
use tokio_util::task::AbortOnDropHandle;

use credbroker_lab::channel::channel_as;

use crate::{
    keys::{OTHER, request},
    subject::Rpc,
};

const GET: &str = "http://localhost/credbroker.v1.CredentialBroker/GetCredential";
/// A user without any right.
const STRANGER: u32 = 61_002;
/// Connections that are open at a time, and requests of each.
const CONNECTIONS: usize = 40;
const REQUESTS: usize = 1000;
/// Bytes of a large header, and of the part of a message that is sent.
const HEADER: usize = 7000;
const PART: usize = 60_000;

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Headers,
    Parts,
    Unread,
}

/// Sends nothing of requests but large headers.
pub(crate) fn headers(socket: &Path, stop: &AtomicBool) -> Result<()> {
    flood(socket, stop, Kind::Headers)
}

/// Sends a part of each message.
pub(crate) fn parts(socket: &Path, stop: &AtomicBool) -> Result<()> {
    flood(socket, stop, Kind::Parts)
}

/// Reads no answer.
pub(crate) fn unread(socket: &Path, stop: &AtomicBool) -> Result<()> {
    flood(socket, stop, Kind::Unread)
}

/// Makes calls as a user without any right.
pub(crate) fn denied(socket: &Path, stop: &AtomicBool) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        while !stop.load(Ordering::Relaxed) {
            let Ok(channel) = channel_as(STRANGER, socket).await else { continue };
            let mut rpc = Rpc::new(channel);
            while !stop.load(Ordering::Relaxed) {
                let answer = rpc.get_credential(request(OTHER, 0)).await;
                if answer.is_err_and(|status| status.code() != tonic::Code::PermissionDenied) {
                    break;
                }
            }
        }
        Ok(())
    })
}

fn flood(socket: &Path, stop: &AtomicBool, kind: Kind) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut open = VecDeque::with_capacity(CONNECTIONS);
        while !stop.load(Ordering::Relaxed) {
            if open.len() == CONNECTIONS {
                open.pop_front();
            }
            let Ok(stream) = UnixStream::connect(socket).await else { continue };
            let mut builder = Builder::new();
            if kind == Kind::Unread {
                builder.initial_window_size(0);
            }
            // The broker may refuse the connection, or end it.
            let Ok((sender, connection)) = builder.handshake::<_, Bytes>(stream).await else { continue };
            let connection = AbortOnDropHandle::new(tokio::spawn(connection));
            open.push_back((connection, requests(sender, stop, kind).await));
        }
        Ok(())
    })
}

/// Makes requests until the broker ends the connection.
async fn requests(
    mut sender: SendRequest<Bytes>,
    stop: &AtomicBool,
    kind: Kind,
) -> Vec<(ResponseFuture, SendStream<Bytes>)> {
    let mut open = Vec::new();
    let message = request(OTHER, 0).encode_to_vec();
    let length = |length: usize| u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes();
    let whole: Bytes = [&[0][..], &length(message.len()), &message].concat().into();
    let part: Bytes = [&[0][..], &length(2 * PART), &vec![0; PART]].concat().into();
    let large = "m".repeat(HEADER);
    while open.len() < REQUESTS && !stop.load(Ordering::Relaxed) {
        let Ok(ready) = sender.ready().await else { break };
        sender = ready;
        let mut request =
            Request::post(GET).header("content-type", "application/grpc").header("te", "trailers");
        if kind == Kind::Headers {
            request = request.header("more", &large);
        }
        let Ok(request) = request.body(()) else { break };
        let Ok((answer, mut body)) = sender.send_request(request, false) else { break };
        let sent = match kind {
            Kind::Headers => Ok(()),
            Kind::Parts => body.send_data(part.clone(), false),
            Kind::Unread => body.send_data(whole.clone(), true),
        };
        if sent.is_err() {
            break;
        }
        open.push((answer, body));
        tokio::task::yield_now().await;
    }
    open
}
