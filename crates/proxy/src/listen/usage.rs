//! What the proxy does now: one `GET` of `/status` on any of its Unix sockets, for those who may list targets.

use super::{Listeners, Serve};
use crate::{caller::Caller, status::Refused, usage::Usage};
use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::Full as Whole;

const PATH: &str = "/status";

/// Whether `request` is for it.
pub(super) fn is_asked<B>(request: &Request<B>) -> bool {
    request.method() == Method::GET && request.uri().path() == PATH
}

/// The answer for `caller`.
pub(super) fn answer<S: Serve>(
    listeners: &Listeners<S>,
    caller: &Caller,
) -> Result<Response<Whole<Bytes>>, Refused> {
    let denied = || Refused::new(StatusCode::FORBIDDEN, "no access rule allows this process to `list`");
    let targets = listeners.parts.serve.usage(caller).ok_or_else(denied)?;
    // One of them is that of this request.
    let usage = Usage { connections: listeners.seats.taken().saturating_sub(1), targets };
    // Text and numbers, which JSON can always have.
    let body = serde_json::to_vec(&usage).unwrap_or_default();
    let mut response = Response::new(Whole::from(body));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}
