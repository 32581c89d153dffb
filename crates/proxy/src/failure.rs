//! Why there is no answer of an API server, in the words of the proxy.

use std::{error::Error, time::Duration};

use credbroker_client::{AuthenticateError, tls::SendError};
use credbroker_kube::EndpointError;
use http::StatusCode;
use hyper_util::client::legacy;

use crate::{status::Refused, target::KnownTarget};

/// Causes that are named, so that no chain makes a text without an end.
const CAUSES: usize = 6;

/// The broker has no credential: 503 with its reason.
pub(crate) fn no_credential(target: &KnownTarget, error: &credbroker_client::Error) -> Refused {
    let cause = text(error);
    // The cause of some errors begins with what it is about.
    let cause = cause.strip_prefix("credbroker: ").unwrap_or(&cause);
    let cause = cause.strip_prefix(&format!("{target}: ")).unwrap_or(cause);
    let message = format!("no credential for {target}: {cause}");
    let refused = Refused::new(StatusCode::SERVICE_UNAVAILABLE, message);
    let refused = refused.retry_after(error.retry_after().unwrap_or(Duration::from_secs(1)));
    match error.reason() {
        Some(reason) => refused.because(reason.name()),
        None => refused,
    }
}

/// The request could not be sent, or was not answered.
pub(crate) fn not_answered(target: &KnownTarget, error: &(dyn Error + 'static)) -> Refused {
    if let Some(error) = find::<credbroker_client::Error>(error) {
        return no_credential(target, error);
    }
    let (code, what) = if find::<SendError>(error).is_some_and(SendError::is_connect_timeout) {
        (StatusCode::GATEWAY_TIMEOUT, "cannot reach")
    } else if find::<SendError>(error).is_some_and(SendError::is_connect) {
        (StatusCode::BAD_GATEWAY, "cannot reach")
    } else {
        (StatusCode::BAD_GATEWAY, "no answer of")
    };
    let refused = Refused::new(code, format!("{what} {target}: {}", text(error)));
    match find::<EndpointError>(error) {
        Some(EndpointError::Moved) => refused.retry_after(Duration::from_secs(1)),
        _ => refused,
    }
}

/// Whether a connection ended before the answer: it may have been idle for long, or its certificate has expired. A request that
/// changes nothing can be sent again.
pub(crate) fn is_lost(error: &(dyn Error + 'static)) -> bool {
    use std::io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    if find::<AuthenticateError>(error).is_some()
        || find::<SendError>(error).is_some_and(SendError::is_connect)
    {
        return false;
    }
    let is_moved = matches!(find::<EndpointError>(error), Some(EndpointError::Moved));
    let by_hyper = find::<hyper::Error>(error)
        .is_some_and(|error| error.is_incomplete_message() || error.is_canceled() || error.is_closed());
    // The client library closes a connection whose certificate has expired with `ConnectionAborted`.
    let by_kernel = find::<std::io::Error>(error).is_some_and(|error| {
        matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof)
    });
    is_moved || by_hyper || by_kernel
}

fn find<'a, T: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a T> {
    chain(error).find_map(|error| error.downcast_ref())
}

fn chain<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error| <dyn Error>::source(*error))
}

/// The error and its causes, each once.
fn text(error: &(dyn Error + 'static)) -> String {
    let mut text = String::new();
    // What only says that a request failed is left out, unless nothing else is known.
    let is_plain = |error: &(dyn Error + 'static)| error.is::<SendError>() || error.is::<legacy::Error>();
    let causes = chain(error).filter(|error| error.source().is_none() || !is_plain(*error));
    for cause in causes.take(CAUSES).map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}
