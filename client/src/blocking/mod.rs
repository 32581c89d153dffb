//! One question without a runtime: HTTP/2 on a blocking Unix socket, on the thread that asks.
//!
//! For processes that live for a millisecond. What there is to send is gathered until an answer is needed, so that the
//! whole request goes out in one write.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use credbroker_client::{Socket, Waits, blocking::ask};
//! use credbroker_proto::v1::{CredentialRef, GetCredentialRequest, ProviderRef, credential_ref::Source};
//!
//! # fn main() -> Result<(), credbroker_client::Error> {
//! let source = Some(Source::Provider(ProviderRef { name: "gke".into(), definition: None }));
//! let reference = Some(CredentialRef { source, ..CredentialRef::default() });
//! let request = GetCredentialRequest { r#ref: reference, ..GetCredentialRequest::default() };
//! let waits = Waits { for_broker: Duration::from_secs(5), in_all: Duration::from_secs(45) };
//! let (answer, _) = ask(&Socket::at(Socket::SYSTEM), &request, waits, None)?;
//! # Ok(())
//! # }
//! ```

mod deadline;
mod exchange;
mod grpc;
mod link;
mod wire;

use std::{io, os::unix::net::UnixStream, sync::Arc};

use bytes::Bytes;
use credbroker_proto::{
    Code,
    v1::{GetCredentialRequest, GetCredentialResponse},
};

use crate::{
    Error, Socket, Waits, connect::connect, lost::ConnectionLost, patience::Patience, trust::TrustedDirectory,
};
use deadline::Deadline;
use exchange::exchange;

pub use deadline::Notice;

/// What an answer came over. It is closed when this is dropped; a process that is about to end can leave that to the
/// kernel, with [`std::mem::forget`].
#[derive(Debug)]
pub struct Connection {
    _stream: UnixStream,
    _directory: TrustedDirectory,
}

/// Asks once, from finding the socket to the answer. A broker that is not there yet, or that leaves before it answers
/// (a restart), is waited for as `waits` says; `notice` is given when it takes long.
///
/// The request carries the deadline, and answers shortly before it with what it is waiting for. To give up does not stop
/// a plugin run: other callers may be waiting for it.
///
/// # Errors
///
/// Every [`Error`] but [`Error::Unusable`]; its variants say what the caller can do. A process that accepts the
/// connection and then sends nothing is given up after five seconds, with [`Error::Unreachable`].
pub fn ask(
    socket: &Socket,
    request: &GetCredentialRequest,
    waits: Waits,
    notice: Option<Notice<'_>>,
) -> Result<(GetCredentialResponse, Connection), Error> {
    let message = grpc::framed(request);
    let mut deadline = Deadline::starting_now(waits.in_all, notice);
    let mut patience = Patience::new(waits.for_broker);
    loop {
        let error = match attempt(socket, message.clone(), &mut deadline) {
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        };
        let pause = patience.next().filter(|_| error.may_be_starting());
        let Some(pause) = pause else { return Err(error) };
        deadline.pause(pause);
        // There was no broker when time ran out: that says more than that it ran out.
        if deadline.is_over() {
            return Err(error);
        }
    }
}

/// Why there is no answer on a connection.
#[derive(Debug)]
enum Broken {
    /// It ended. A broker that leaves does that.
    Lost(String),
    /// The other end does not speak gRPC as a broker does.
    NotGrpc(String),
    /// Nothing at all came from the other end.
    Silent,
    /// The deadline passed.
    TimedOut,
}

fn attempt(
    socket: &Socket,
    message: Bytes,
    deadline: &mut Deadline<'_>,
) -> Result<(GetCredentialResponse, Connection), Error> {
    let (stream, directory) = connect(socket)?;
    let unreachable = |kind: io::ErrorKind, text: String| Error::Unreachable {
        socket: socket.clone(),
        source: Arc::new(io::Error::new(kind, text)),
    };
    let limit = deadline.limit();
    let answer = exchange(&stream, message, deadline).and_then(|answer| grpc::outcome(&answer));
    match answer {
        Ok(Ok(answer)) => Ok((answer, Connection { _stream: stream, _directory: directory })),
        // The deadline that we sent: a server without stable reasons reports it like this.
        Ok(Err(status))
            if status.details.is_empty()
                && matches!(status.code, Code::DeadlineExceeded | Code::Cancelled) =>
        {
            Err(Error::Timeout { limit })
        }
        Ok(Err(status)) => Err(Error::refused(socket, status.code, &status.message, &status.details)),
        Err(Broken::Lost(text)) => Err(Error::lost(socket, ConnectionLost::new(text))),
        Err(Broken::NotGrpc(text)) => Err(unreachable(io::ErrorKind::InvalidData, text)),
        Err(Broken::Silent) => {
            let text = format!(
                "the process that listens there accepted the connection and sent nothing for {} s",
                link::SILENCE.as_secs()
            );
            Err(unreachable(io::ErrorKind::TimedOut, text))
        }
        Err(Broken::TimedOut) => Err(Error::Timeout { limit }),
    }
}
