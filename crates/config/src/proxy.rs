//! The section `proxy`: where the proxy listens, and how it knows its callers.

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    time::Duration,
};

use super::{
    endpoints::{Keys, Listen, MetricsAddress, audit_file, metrics_address, refuse_duplicates},
    file::expand,
    schema::Cursor,
    table::{
        proxy as table, proxy_audit as audit, proxy_listen as listen, proxy_metrics as metrics,
        proxy_tls as tls, root,
    },
};
use credbroker_plugin::Environment;

static KEYS: Keys = Keys {
    default: "proxy",
    name: &listen::NAME,
    socket: &listen::SOCKET,
    mode: &listen::MODE,
    group: &listen::GROUP,
    shared_directory: &listen::SHARED_DIRECTORY,
};

/// The port of the listener with TLS, unless the configuration says otherwise.
const PORT: u16 = 9465;

/// The section `proxy`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ProxySection {
    /// The directory of keys and of the certificate authority; `None`: the default for the user of the process.
    pub directory: Option<PathBuf>,
    /// Unix sockets. That of one without a path is below the directory.
    pub sockets: Vec<Listen>,
    /// The loopback port; `None`: there is none.
    pub tls: Option<ProxyTls>,
    /// Where a separate proxy serves its metrics; `None`: nowhere.
    pub metrics: Option<MetricsAddress>,
    /// The audit file of a separate proxy; `None`: that of the broker.
    pub audit: Option<PathBuf>,
}

impl ProxySection {
    /// The directory of the machine's proxy.
    pub const SYSTEM: &str = "/run/credbroker-proxy";

    /// The directory, or the default for a user, unless systemd has made one.
    pub fn directory(&self, environment: &Environment, is_root: bool) -> PathBuf {
        let own =
            environment.set("XDG_RUNTIME_DIR").map(Path::new).filter(|path| path.is_absolute() && !is_root);
        let default = || own.map_or_else(|| Self::SYSTEM.into(), |path| path.join("credbroker-proxy"));
        self.directory.clone().unwrap_or_else(default)
    }
}

/// `proxy.tls`: the loopback port.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ProxyTls {
    /// A loopback address with a port.
    pub listen: SocketAddr,
    /// How long a handle is valid.
    pub handle_lifetime: Duration,
    /// Whether a connection is refused if the kernel does not say whose it is.
    pub require_uid: bool,
}

impl ProxyTls {
    /// How access rules call this listener.
    pub const NAME: &str = "tls";
}

impl Default for ProxyTls {
    fn default() -> Self {
        let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, PORT));
        let (handle_lifetime, require_uid) = (tls::HANDLE_LIFETIME.absent.0, tls::REQUIRE_UID.absent.0);
        Self { listen, handle_lifetime, require_uid }
    }
}

impl Default for ProxySection {
    fn default() -> Self {
        let (directory, sockets, tls) = (None, Vec::new(), Some(ProxyTls::default()));
        Self { directory, sockets, tls, metrics: None, audit: None }
    }
}

/// The section; `None`: there is none. `others` are the listeners of the broker, whose names and sockets are taken.
pub(super) fn proxy(root: &Cursor<'_>, env: &Environment, others: &[Listen]) -> Option<ProxySection> {
    let fields = root::PROXY.read(root)?;
    let directory = table::DIRECTORY.read(&fields).map(|(at, text)| {
        let path = expand(text, env);
        if !path.is_absolute() {
            at.problem("must be an absolute path, like `/run/credbroker-proxy`");
        }
        path
    });
    let port = table::TLS.read(&fields);
    let mut sockets: Vec<Listen> = Vec::new();
    for at in table::LISTEN.read(&fields).unwrap_or_default() {
        let socket = Listen::read(&at, env, &KEYS);
        refuse_duplicates(&at, &sockets, &socket);
        if socket.name == ProxyTls::NAME {
            at.problem(format!(
                "access rules call the port of `proxy.tls` `{}`; set a different `name`",
                socket.name
            ));
        }
        for other in others {
            let shares = |path: &PathBuf| other.socket.as_ref() == Some(path);
            if other.name == socket.name {
                at.problem(format!(
                    "a listener of the broker has the name `{}`; set a different `name`",
                    other.name
                ));
            } else if socket.socket.as_ref().is_some_and(shares) {
                at.problem(format!(
                    "listener `{}` of the broker has the same socket; set another `socket`",
                    other.name
                ));
            }
        }
        sockets.push(socket);
    }
    let tls = match &port {
        Some(fields) => Some(proxy_tls(fields)?),
        None => sockets.is_empty().then(ProxyTls::default),
    };
    let metrics = table::METRICS.read(&fields).and_then(|fields| {
        let (at, text) = metrics::LISTEN.read(&fields)?;
        metrics_address(&at, text, metrics::EXPOSURE.read(&fields))
    });
    let audit = table::AUDIT.read(&fields).and_then(|fields| audit::FILE.read(&fields));
    let audit = audit.map(|(at, text)| audit_file(&at, text, env));
    Some(ProxySection { directory, sockets, tls, metrics, audit })
}

fn proxy_tls(fields: &Cursor<'_>) -> Option<ProxyTls> {
    let default = ProxyTls::default();
    let require_uid = tls::REQUIRE_UID.read(fields);
    if let (false, Some(value)) = (require_uid, fields.get(tls::REQUIRE_UID.name)) {
        value.warning("where the kernel does not say whose a connection is, every process that has a handle can use it, also one of another user");
    }
    let handle_lifetime = tls::HANDLE_LIFETIME.read(fields);
    let listen = match tls::LISTEN.read(fields) {
        None => default.listen,
        Some((at, text)) => loopback(text).or_else(|| {
            at.reject("must be `127.0.0.1:PORT` or `[::1]:PORT`: only processes of this machine may connect")
        })?,
    };
    Some(ProxyTls { listen, handle_lifetime, require_uid })
}

/// The certificate is for these addresses and no other of the loopback interface.
fn loopback(text: &str) -> Option<SocketAddr> {
    let is_ours = |address: &SocketAddr| match address {
        SocketAddr::V4(address) => *address.ip() == Ipv4Addr::LOCALHOST,
        SocketAddr::V6(address) => address.ip().is_loopback() && address.scope_id() == 0,
    };
    text.parse().ok().filter(is_ours)
}

#[cfg(test)]
mod tests;
