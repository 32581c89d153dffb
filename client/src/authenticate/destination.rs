//! The server that a URI leads to.

use std::{fmt, net::IpAddr};

use http::Uri;

/// Scheme, host and port of a URI. User, password, path and query are left out, so it is safe to show.
///
/// Destinations are equal if they lead to the same server: case does not count, nor does a dot at the end of a host name,
/// and a missing port is the one of the scheme. IP addresses are compared as addresses.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Destination(Option<Box<Server>>);

#[derive(Clone, Debug, Eq, PartialEq)]
struct Server {
    scheme: String,
    host: Host,
    port: Option<u16>,
}

#[derive(Clone, Debug, Eq, PartialEq)]
enum Host {
    Address(IpAddr),
    Name(String),
}

impl Destination {
    /// The destination of this URI.
    pub fn of(uri: &Uri) -> Self {
        Self(Server::of(uri).map(Box::new))
    }

    /// The destination of this text. `None`: it is not an absolute URI.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let server = Server::of(&text.parse().ok()?)?;
        Some(Self(Some(Box::new(server))))
    }
}

impl Server {
    fn of(uri: &Uri) -> Option<Self> {
        let scheme = uri.scheme_str()?.to_ascii_lowercase();
        let host = uri.host().filter(|host| !host.is_empty())?;
        let port = uri.port_u16().or_else(|| default_port(&scheme));
        Some(Self { host: Host::of(host), port, scheme })
    }
}

impl Host {
    fn of(host: &str) -> Self {
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        match bare.parse() {
            Ok(address) => Self::Address(address),
            Err(_) => Self::Name(host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase()),
        }
    }
}

fn default_port(scheme: &str) -> Option<u16> {
    match scheme {
        "https" => Some(443),
        "http" => Some(80),
        _ => None,
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(Server { scheme, host, port }) = self.0.as_deref() else {
            return f.write_str("a URI without a scheme or host");
        };
        match host {
            Host::Address(IpAddr::V6(address)) => write!(f, "{scheme}://[{address}]")?,
            Host::Address(address) => write!(f, "{scheme}://{address}")?,
            Host::Name(name) => write!(f, "{scheme}://{name}")?,
        }
        match port.filter(|port| default_port(scheme) != Some(*port)) {
            Some(port) => write!(f, ":{port}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
