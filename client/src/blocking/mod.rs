//! One call without a runtime: HTTP/2 on a Unix socket, on the calling thread.
//!
//! It is for processes that live for a millisecond, such as exec plugins. The output is collected until a response is
//! needed, so the whole request is one write.

mod attend;
mod call;
mod deadline;
mod exchange;
mod grpc;
mod lease;
mod link;
mod request;
mod timeouts;
mod wire;

use std::{io, os::unix::net::UnixStream, sync::Arc};

use credbroker_proto::Code;

use crate::{
    connect::{Directory, connect, is_own},
    credential::Credential,
    error::Error,
    lost::ConnectionLost,
    socket::Socket,
};
use attend::Attend;
use call::ExchangeError;
use deadline::{Attending, Deadline};
use exchange::{Call, exchange};
use timeouts::Pauses;

pub use deadline::Notice;
pub use request::CredentialRequest;
pub use timeouts::Timeouts;

/// The connection of a call. It is closed on drop. A process that is about to end can leave that to the kernel, with
/// [`std::mem::forget`].
#[derive(Debug)]
pub struct OpenConnection {
    _stream: UnixStream,
    _directory: Directory,
}

/// Finds the socket, connects, and gets a credential. A broker that is starting, or that is replaced by another one before
/// it answers, is retried as `timeouts` says. `notice` is given when the call takes long.
///
/// The broker knows the deadline, and answers shortly before it. Giving up does not stop a plugin run, because other callers
/// may be waiting for it.
///
/// # Errors
///
/// Every [`Error`]. A process that accepts the connection and sends nothing for five seconds is
/// [`Error::Unreachable`].
pub fn get_credential(
    socket: &Socket,
    request: &CredentialRequest,
    timeouts: Timeouts,
    notice: Option<Notice<'_>>,
) -> Result<(Credential, OpenConnection), Error> {
    call(socket, request, timeouts, notice, false)
}

/// As [`get_credential`], for a login: runs the provider's plugin even if the broker holds a valid credential, and attends
/// that run from its start. `notice` gets the lines of the plugin.
///
/// # Errors
///
/// As [`get_credential`].
pub fn log_in(
    socket: &Socket,
    request: &CredentialRequest,
    timeouts: Timeouts,
    notice: Notice<'_>,
) -> Result<(Credential, OpenConnection), Error> {
    call(socket, request, timeouts, Some(notice), true)
}

fn call(
    socket: &Socket,
    request: &CredentialRequest,
    timeouts: Timeouts,
    mut notice: Option<Notice<'_>>,
    is_login: bool,
) -> Result<(Credential, OpenConnection), Error> {
    let mut attending = notice.as_mut().and_then(Notice::take_attending);
    let message = grpc::framed(request.message());
    let mut deadline = Deadline::starting_now(timeouts, notice);
    let mut pauses = Pauses::new(timeouts.broker_start);
    loop {
        let attend = attending.as_mut().map(|Attending { after, lines, lend }| Attend {
            after: *after,
            request: request.message(),
            is_login,
            is_patient: timeouts.follow_run,
            lines: &mut **lines,
            lend: lend.as_mut().map(|before| &mut **before as &mut dyn FnMut()),
        });
        let call = match attend {
            Some(attend) if is_login => Call::Attend(attend),
            attend => Call::Get(message.clone(), attend),
        };
        let error = match attempt(socket, call, &mut deadline) {
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        };
        let pause = pauses.next().filter(|_| error.may_be_starting());
        let Some(pause) = pause else { return Err(error) };
        deadline.pause(pause);
        // That there was no broker says more than that the time is over.
        if deadline.is_over() {
            return Err(error);
        }
    }
}

fn attempt(
    socket: &Socket,
    call: Call<'_>,
    deadline: &mut Deadline<'_>,
) -> Result<(Credential, OpenConnection), Error> {
    let (stream, directory) = connect(socket)?;
    let unreachable = |kind: io::ErrorKind, text: String| Error::Unreachable {
        socket: socket.clone(),
        source: Arc::new(io::Error::new(kind, text)),
    };
    let answer = exchange(&stream, call, deadline, &|| is_own(&stream, &directory));
    let limit = deadline.limit();
    let answer = answer.and_then(|answer| grpc::outcome(&answer));
    match answer {
        Ok(Ok(answer)) => {
            let credential = Credential::from_message(answer.credential.unwrap_or_default(), answer.cluster)?;
            Ok((credential, OpenConnection { _stream: stream, _directory: directory }))
        }
        // Our own deadline, as a server without stable reasons reports it.
        Ok(Err(status))
            if status.details.is_empty()
                && matches!(status.code, Code::DeadlineExceeded | Code::Cancelled) =>
        {
            Err(Error::timeout(limit))
        }
        Ok(Err(status)) => Err(Error::refused(socket, status.code, &status.message, &status.details)),
        Err(ExchangeError::Lost(text)) => Err(Error::lost(socket, ConnectionLost::new(text))),
        Err(ExchangeError::NotGrpc(text)) => Err(unreachable(io::ErrorKind::InvalidData, text)),
        Err(ExchangeError::Silent) => {
            let text = format!(
                "the process that listens there accepted the connection and sent nothing for {} s",
                deadline.silence().as_secs()
            );
            Err(unreachable(io::ErrorKind::TimedOut, text))
        }
        Err(ExchangeError::TimedOut) => Err(Error::timeout(limit)),
    }
}
