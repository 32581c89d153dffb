//! How each call begins, and why it has no answer.

use std::fmt::Display;

use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use http::Request;

/// Why there is no answer on a connection.
#[derive(Debug)]
pub(super) enum ExchangeError {
    /// The connection ended, as it does when a broker shuts down.
    Lost(String),
    /// The other end does not speak gRPC as a broker does.
    NotGrpc(String),
    /// The other end sent nothing.
    Silent,
    /// The deadline passed.
    TimedOut,
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

pub(super) fn lost(error: impl Display) -> ExchangeError {
    ExchangeError::Lost(error.to_string())
}
