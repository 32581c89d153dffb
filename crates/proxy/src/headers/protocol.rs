//! Upgrades of a connection.

use http::{HeaderMap, HeaderValue, header};

use super::tokens;
use crate::status::Refused;

/// What a connection can become. The proxy passes both, and translates neither.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Protocol {
    /// `exec` and its like of new clients, and watches of fabric8.
    WebSocket,
    /// `exec` and its like of old clients.
    Spdy,
}

impl Protocol {
    /// As in the header `Upgrade`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::WebSocket => "websocket",
            Self::Spdy => "SPDY/3.1",
        }
    }

    pub(super) fn insert_into(self, headers: &mut HeaderMap) {
        headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(header::UPGRADE, HeaderValue::from_static(self.as_str()));
    }
}

/// The upgrade that a request asks for, or an answer with 101 agrees to.
///
/// # Errors
///
/// It is another one than [`Protocol`] has, or several, or only one of `Connection` and `Upgrade` says so.
pub fn upgrade(headers: &HeaderMap) -> Result<Option<Protocol>, Refused> {
    let is_asked = tokens(headers, &header::CONNECTION).any(|token| token.eq_ignore_ascii_case("upgrade"));
    // A list of protocols can be an offer, so it counts only as a whole.
    let protocols: Vec<&str> = tokens(headers, &header::UPGRADE).collect();
    let protocol = match protocols[..] {
        [] if !headers.contains_key(header::UPGRADE) => {
            if is_asked {
                return Err(Refused::bad_request(
                    "`Connection: Upgrade` is there, and the header `Upgrade` is not",
                ));
            }
            return Ok(None);
        }
        // Clients that prefer HTTP/2 offer it in ordinary requests without TLS. A server can ignore that.
        [protocol] if protocol.eq_ignore_ascii_case("h2c") => return Ok(None),
        [protocol] if protocol.eq_ignore_ascii_case("websocket") => Protocol::WebSocket,
        [protocol] if protocol.eq_ignore_ascii_case("SPDY/3.1") => Protocol::Spdy,
        _ => return Err(Refused::bad_request("`Upgrade` must be `websocket` or `SPDY/3.1`")),
    };
    if is_asked {
        Ok(Some(protocol))
    } else {
        Err(Refused::bad_request("the header `Upgrade` is there, and `Connection: Upgrade` is not"))
    }
}
