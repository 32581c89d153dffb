//! The handle that a client of the loopback port shows.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use http::{HeaderMap, HeaderValue, header};
use secrecy::SecretString;

use super::tokens;
use crate::status::Refused;

/// The subprotocol of a WebSocket that has a token of a browser-like client in its name.
const SUBPROTOCOL: &str = "base64url.bearer.authorization.k8s.io.";

/// The handle of a request: of `Authorization: Bearer`, or else of the subprotocol that the API server knows.
///
/// # Errors
///
/// There are two, or one that cannot be decoded.
pub fn handle(headers: &HeaderMap) -> Result<Option<SecretString>, Refused> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    if let Some(value) = values.next() {
        if values.next().is_some() {
            return Err(Refused::bad_request("the request has the header `authorization` twice"));
        }
        let value = value.to_str().ok().and_then(|value| value.split_once(' '));
        let token =
            value.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer")).map(|(_, token)| token.trim());
        return Ok(token.filter(|token| !token.is_empty()).map(SecretString::from));
    }
    let mut encoded =
        tokens(headers, &header::SEC_WEBSOCKET_PROTOCOL).filter_map(|token| token.strip_prefix(SUBPROTOCOL));
    let Some(first) = encoded.next() else { return Ok(None) };
    if encoded.next().is_some() {
        return Err(Refused::bad_request("the request has two tokens in `Sec-WebSocket-Protocol`"));
    }
    let token = URL_SAFE_NO_PAD.decode(first).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    match token.filter(|token| !token.is_empty()) {
        Some(token) => Ok(Some(token.into())),
        None => Err(Refused::bad_request("the token in `Sec-WebSocket-Protocol` is not base64url")),
    }
}

/// Removes the subprotocol with the token, which the API server would take for a credential.
pub(super) fn remove_from_protocols(headers: &mut HeaderMap) {
    let is_token = |protocol: &&str| protocol.to_ascii_lowercase().starts_with(SUBPROTOCOL);
    if !headers.contains_key(header::SEC_WEBSOCKET_PROTOCOL) {
        return;
    }
    let kept: Vec<&str> =
        tokens(headers, &header::SEC_WEBSOCKET_PROTOCOL).filter(|it| !is_token(it)).collect();
    match HeaderValue::from_str(&kept.join(", ")) {
        Ok(kept) if !kept.is_empty() => headers.insert(header::SEC_WEBSOCKET_PROTOCOL, kept),
        _ => headers.remove(header::SEC_WEBSOCKET_PROTOCOL),
    };
}
