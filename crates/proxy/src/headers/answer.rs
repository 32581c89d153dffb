//! Headers of answers.

use http::{HeaderMap, HeaderValue, StatusCode, Uri, header};

use super::{Protocol, location, remove, remove_hop_by_hop, upgrade};
use crate::{path::Address, status::Refused};

/// Changes the headers of an answer with `status` to those that the client gets. `server` is the URL of the API server.
/// `address` and `asked` are what the request is for, and the upgrade that it asks for.
///
/// # Errors
///
/// The answer cannot be passed on (502): it redirects to another server, its end is ambiguous, or it is a 101 with another
/// protocol.
pub fn for_client(
    headers: &mut HeaderMap,
    status: StatusCode,
    server: &Uri,
    address: &Address,
    asked: Option<Protocol>,
) -> Result<(), Refused> {
    if headers.contains_key(header::TRANSFER_ENCODING) && headers.contains_key(header::CONTENT_LENGTH)
        || headers.get_all(header::CONTENT_LENGTH).iter().count() > 1
    {
        return Err(bad_gateway("the answer of the API server has two lengths"));
    }
    if headers
        .get_all(header::TRANSFER_ENCODING)
        .iter()
        .any(|it| !it.as_bytes().eq_ignore_ascii_case(b"chunked"))
    {
        return Err(bad_gateway("`Transfer-Encoding` of the API server is not `chunked`"));
    }
    let protocol = if status == StatusCode::SWITCHING_PROTOCOLS {
        let agreed = upgrade(headers).ok().flatten().filter(|agreed| asked == Some(*agreed));
        let message = "the API server changes to a protocol that the client did not ask for";
        Some(agreed.ok_or_else(|| bad_gateway(message))?)
    } else {
        None
    };
    remove_hop_by_hop(headers);
    remove(headers, |name| {
        // A browser would keep them for all targets, or for all programs on this machine.
        matches!(
            name,
            "set-cookie"
                | "set-cookie2"
                | "alt-svc"
                | "www-authenticate"
                | "strict-transport-security"
                | "clear-site-data"
        ) || name.starts_with("access-control-")
            || name.starts_with("proxy-")
    });
    if let Some(protocol) = protocol {
        protocol.insert_into(headers);
    }
    if let Some(value) = headers.get(header::LOCATION) {
        let location = value.to_str().ok().and_then(|value| location::rewrite(value, server, address));
        match location.and_then(|location| HeaderValue::try_from(location).ok()) {
            Some(location) => {
                headers.insert(header::LOCATION, location);
            }
            // Only then do clients follow it, with what they show to the proxy.
            None if status.is_redirection() => {
                return Err(bad_gateway("the API server redirects to another server"));
            }
            None => {
                headers.remove(header::LOCATION);
            }
        }
    }
    Ok(())
}

fn bad_gateway(message: &str) -> Refused {
    Refused::new(StatusCode::BAD_GATEWAY, message)
}
