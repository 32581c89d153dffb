//! What keeps pages in a browser out.

use http::{HeaderMap, Method, StatusCode, Uri, header, uri::Authority};

use super::{Protocol, upgrade};
use crate::status::Refused;

const LOOPBACK: [&str; 3] = ["127.0.0.1", "[::1]", "localhost"];

/// What clients call a listener.
#[derive(Clone, Debug)]
pub struct Site {
    /// `https`, or `http` for a Unix socket.
    pub scheme: &'static str,
    /// The port of the listener. `None`: any, for a Unix socket, whose clients come through a port of another program.
    pub port: Option<u16>,
    /// Origins of pages that may send requests, such as `https://dashboard.example:8443`.
    pub origins: Vec<String>,
}

impl Site {
    /// Refuses what a page in a browser can send, through DNS rebinding (its own name for our address) or across sites. No
    /// answer has a header that would let a page read it.
    ///
    /// # Errors
    ///
    /// 421 for another host, 403 for a page, 405 for the question of a browser whether it may ask, and 400 without a host.
    pub fn check(&self, method: &Method, uri: &Uri, headers: &HeaderMap) -> Result<(), Refused> {
        let host = self.host(uri, headers)?;
        if method == Method::OPTIONS {
            return Err(Refused::new(StatusCode::METHOD_NOT_ALLOWED, "the proxy does not answer `OPTIONS`"));
        }
        let forbidden = || Refused::new(StatusCode::FORBIDDEN, "pages in a browser cannot use the proxy");
        let site = headers.get("sec-fetch-site");
        let mut origins = headers.get_all(header::ORIGIN).iter();
        let Some(origin) = origins.next() else {
            let is_foreign = headers.get_all("sec-fetch-site").iter().any(|site| site != "none");
            return if is_foreign { Err(forbidden()) } else { Ok(()) };
        };
        let is_single = origins.next().is_none();
        let is_listed = self.origins.iter().any(|listed| listed.as_bytes() == origin.as_bytes());
        // Clients in Python and fabric8 send the URL that they connect to as the origin of a WebSocket. A browser would send
        // `Sec-Fetch-Site` too.
        let ours = format!("{}://{host}", self.scheme);
        let is_library = site.is_none()
            && upgrade(headers) == Ok(Some(Protocol::WebSocket))
            && origin.as_bytes().eq_ignore_ascii_case(ours.as_bytes());
        if is_single && (is_listed || is_library) { Ok(()) } else { Err(forbidden()) }
    }

    /// The host that the request names, if it is this one.
    fn host(&self, uri: &Uri, headers: &HeaderMap) -> Result<Authority, Refused> {
        let hosts = headers.get_all(header::HOST).iter();
        let hosts = hosts.map(|host| host.to_str().ok()?.parse::<Authority>().ok());
        let hosts: Vec<Option<Authority>> = hosts.chain(uri.authority().cloned().map(Some)).collect();
        let Some(Some(host)) = hosts.first().cloned() else {
            return Err(Refused::bad_request("the request names no host"));
        };
        let default = if self.scheme == "https" { 443 } else { 80 };
        let is_ours = LOOPBACK.iter().any(|name| {
            let with = |port: u16| host.as_str().eq_ignore_ascii_case(&format!("{name}:{port}"));
            let without = host.as_str().eq_ignore_ascii_case(name);
            match self.port {
                Some(port) => with(port) || port == default && without,
                None => without || host.port_u16().is_some_and(with),
            }
        });
        if hosts.iter().all(|other| other.as_ref() == Some(&host)) && is_ours {
            Ok(host)
        } else {
            let message = "this is not the host of the proxy: use the `server` of its kubeconfig";
            Err(Refused::new(StatusCode::MISDIRECTED_REQUEST, message))
        }
    }
}
