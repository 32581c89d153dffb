//! Headers of requests and answers: what is removed, and what is added. Pure.
//!
//! [`check`] refuses a request; [`for_upstream`] then removes everything that belongs to the client's connection or says who
//! the client is, and the credential is added to what is left: in the other order, `Connection: Authorization` would remove
//! the credential. [`for_client`] does the same with an answer, whose connection the proxy shares between clients.

mod answer;
mod browser;
mod handle;
mod location;
mod protocol;

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Version, header};

pub use answer::for_client;
pub use browser::Site;
pub use handle::handle;
pub use protocol::{Protocol, upgrade};

use crate::status::Refused;

/// Most bytes of names and values together.
pub const LONGEST: usize = 64 * 1024;

/// Names without which no request is complete, and which programs read differently if there are two.
const SINGLE: [HeaderName; 4] =
    [header::HOST, header::CONTENT_LENGTH, header::TRANSFER_ENCODING, header::AUTHORIZATION];

/// Why two programs could read a request differently, if neither its URL nor its headers say so any longer. An extension of
/// the request.
#[derive(Clone, Copy, Debug)]
pub struct Hidden(pub &'static str);

/// Refuses requests that programs read differently, and those that the proxy would have to change to forward them.
///
/// # Errors
///
/// Such a request: 400, 403 for `Impersonate-*`, or 431.
pub fn check(version: Version, headers: &HeaderMap) -> Result<(), Refused> {
    if version < Version::HTTP_11 {
        return Err(Refused::bad_request("the proxy speaks HTTP/1.1 and HTTP/2"));
    }
    let bytes: usize = headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
    if bytes > LONGEST {
        let message = "the headers have more than 64 KiB";
        return Err(Refused::new(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, message));
    }
    if let Some(name) = SINGLE.iter().find(|name| headers.get_all(*name).iter().count() > 1) {
        return Err(Refused::bad_request(format!("the request has the header `{name}` twice")));
    }
    if version < Version::HTTP_2 && !headers.contains_key(header::HOST) {
        return Err(Refused::bad_request("the request has no header `Host`"));
    }
    if headers.keys().any(|name| canonical(name).starts_with("impersonate-")) {
        // Without the header, the request would be made as another user than the client wants.
        let message = "impersonation is not possible through the proxy; do not use `--as`";
        return Err(Refused::new(StatusCode::FORBIDDEN, message));
    }
    let is_of_connection = |name: &HeaderName| is_hop_by_hop(name.as_str()) && *name != header::TE;
    if version >= Version::HTTP_2 && headers.keys().any(is_of_connection) {
        return Err(Refused::bad_request("HTTP/2 does not have headers of a connection"));
    }
    if let Some(encoding) = headers.get(header::TRANSFER_ENCODING) {
        if headers.contains_key(header::CONTENT_LENGTH) {
            return Err(Refused::bad_request("the request has `Transfer-Encoding` and `Content-Length`"));
        }
        if !encoding.as_bytes().eq_ignore_ascii_case(b"chunked") {
            return Err(Refused::bad_request("`Transfer-Encoding` must be `chunked`"));
        }
    }
    let length = headers.get(header::CONTENT_LENGTH).map(HeaderValue::as_bytes);
    if length.is_some_and(|length| length.is_empty() || !length.iter().all(u8::is_ascii_digit)) {
        return Err(Refused::bad_request("`Content-Length` is not a number"));
    }
    let has_body = headers.contains_key(header::TRANSFER_ENCODING)
        || headers.get(header::CONTENT_LENGTH).is_some_and(|length| length != "0");
    if upgrade(headers)?.is_some() && has_body {
        return Err(Refused::bad_request("a request for an upgrade cannot have a body"));
    }
    Ok(())
}

/// The headers of a request as the API server gets them, without `Host` and the credential, which the caller adds.
///
/// `is_upgrade`: the request is sent on a separate connection, which becomes a tunnel.
pub fn for_upstream(mut headers: HeaderMap, audit_id: &str, is_upgrade: bool) -> HeaderMap {
    let protocol = upgrade(&headers).ok().flatten().filter(|_| is_upgrade);
    remove_hop_by_hop(&mut headers);
    remove(&mut headers, |name| {
        matches!(
            name,
            "host" | "expect" | "authorization" | "cookie" | "forwarded" | "x-real-ip" | "audit-id"
        ) || STRIPPED.iter().any(|prefix| name.starts_with(prefix))
    });
    handle::remove_from_protocols(&mut headers);
    if let Some(protocol) = protocol {
        protocol.insert_into(&mut headers);
    }
    if let Ok(audit_id) = HeaderValue::from_str(audit_id) {
        headers.insert("audit-id", audit_id);
    }
    let ours = concat!("credbroker/", env!("CARGO_PKG_VERSION"));
    let agent = match headers.get(header::USER_AGENT) {
        Some(agent) => HeaderValue::from_bytes(&[agent.as_bytes(), b" ", ours.as_bytes()].concat()).ok(),
        None => None,
    };
    headers.insert(header::USER_AGENT, agent.unwrap_or(HeaderValue::from_static(ours)));
    headers
}

/// Beginnings of names that say who sends a request, or that it is another request than it seems.
const STRIPPED: [&str; 8] = [
    "proxy-",
    "impersonate-",
    "x-forwarded-",
    "x-remote-",
    "x-http-method",
    "x-method-override",
    "x-original-",
    "x-rewrite-",
];

/// Removes what concerns one connection, and all that `Connection` names.
fn remove_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<String> = tokens(headers, &header::CONNECTION).map(str::to_ascii_lowercase).collect();
    remove(headers, |name| is_hop_by_hop(name) || named.iter().any(|it| it == name));
}

fn is_hop_by_hop(name: &str) -> bool {
    matches!(
        name,
        "connection"
            | "keep-alive"
            | "proxy-connection"
            | "proxy-authenticate"
            | "proxy-authorization"
            | "te"
            | "trailer"
            | "transfer-encoding"
            | "upgrade"
            | "http2-settings"
    )
}

/// Removes the headers whose name, as it is or in the form of [`canonical`], is to be removed.
fn remove(headers: &mut HeaderMap, is_removed: impl Fn(&str) -> bool) {
    let names: Vec<HeaderName> = headers
        .keys()
        .filter(|name| is_removed(name.as_str()) || is_removed(&canonical(name)))
        .cloned()
        .collect();
    for name in names {
        headers.remove(name);
    }
}

/// Programs behind the API server may read `_` as `-`.
fn canonical(name: &HeaderName) -> String {
    name.as_str().replace('_', "-")
}

/// The parts of all values of a header, without what is not ASCII.
fn tokens<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    let values = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    values
        .flat_map(|value| value.split(','))
        .map(|token| token.trim_matches([' ', '\t']))
        .filter(|token| !token.is_empty())
}

#[cfg(test)]
mod tests;
