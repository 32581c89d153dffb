//! The listeners: Unix sockets, and TLS on a loopback port. Both make a [`Caller`] out of what the kernel says.

mod connection;
mod handles;
mod port;
mod socket;
mod usage;
mod watched;
mod wire;

use std::{error::Error, net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use credbroker_observe::clock::Clock;
use credbroker_plugin::access::Principal;
use credbroker_uds_server::{Full, Limits, Peer, PeerIdentity, Seat, Seats, accept_each};
use http::{Request, Response};
use http_body_util::{Either, Full as Whole};
use hyper::body::{Body, Incoming};
use tokio::{
    net::{TcpListener, UnixListener},
    sync::watch,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::debug;

use crate::{
    answer::AnswerBody,
    caller::Caller,
    forward::Proxy,
    handle::HandleKey,
    keys::Keys,
    owner::{OwnerError, owner},
    path::TargetName,
    status::Refused,
    target::KnownTarget,
    tls::{AuthorityError, Leaf, server_config},
    usage::TargetUse,
};

/// What serves the requests of known callers.
pub trait Serve: Send + Sync + 'static {
    /// The body of an answer.
    type Body: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static;

    /// The answer to a request. It may be an upgrade.
    fn answer(
        self: Arc<Self>,
        caller: Arc<Caller>,
        request: Request<Incoming>,
    ) -> impl Future<Output = Response<Self::Body>> + Send;

    /// The access rule under which `caller` may use `target`; `None`: there are no rules.
    ///
    /// # Errors
    ///
    /// There is no such target, or the caller may not use it.
    fn rule(
        &self,
        caller: &Caller,
        target: &TargetName,
    ) -> impl Future<Output = Result<Option<Arc<str>>, Refused>> + Send;

    /// As [`Self::rule`], after there is a credential for `target` or a few seconds have passed.
    ///
    /// # Errors
    ///
    /// As there, and the reason of the broker if it has no credential: a person sees what the shim prints, but kubectl drops the
    /// message of a 503, and is silent for minutes because it tries again.
    fn ready(
        &self,
        caller: &Caller,
        target: &TargetName,
    ) -> impl Future<Output = Result<Option<Arc<str>>, Refused>> + Send;

    /// Records a request of `caller` that a listener has refused itself.
    fn refused(&self, caller: Arc<Caller>, refused: &Refused);

    /// The targets that `caller` may use, in order: the name of each, and the path that its requests begin with.
    fn targets(&self, caller: &Caller) -> impl Future<Output = Vec<(String, String)>> + Send;

    /// The targets in use that `caller` may list, in order. `None`: it may list nothing.
    fn usage(&self, caller: &Caller) -> Option<Vec<TargetUse>>;
}

impl Serve for Proxy {
    type Body = AnswerBody;

    async fn answer(
        self: Arc<Self>,
        caller: Arc<Caller>,
        request: Request<Incoming>,
    ) -> Response<AnswerBody> {
        Self::answer(&self, &caller, request).await
    }

    async fn rule(&self, caller: &Caller, target: &TargetName) -> Result<Option<Arc<str>>, Refused> {
        Self::rule(self, caller, target).await
    }

    async fn ready(&self, caller: &Caller, target: &TargetName) -> Result<Option<Arc<str>>, Refused> {
        Self::ready(self, caller, target).await
    }

    fn refused(&self, caller: Arc<Caller>, refused: &Refused) {
        Self::refused(self, &caller, refused);
    }

    async fn targets(&self, caller: &Caller) -> Vec<(String, String)> {
        let named = |target: KnownTarget| (target.name(), target.path());
        let mut targets: Vec<_> = Self::targets(self, caller).await.into_iter().map(named).collect();
        targets.sort();
        targets
    }

    fn usage(&self, caller: &Caller) -> Option<Vec<TargetUse>> {
        Self::usage(self, caller)
    }
}

/// What a peer of a Unix socket is to access rules, at the listener of that name.
pub type Identify = fn(PeerIdentity, Arc<str>) -> Principal;

/// What listeners consist of.
#[expect(missing_debug_implementations, reason = "what serves need not have it")]
pub struct ListenerParts<S> {
    /// What serves the requests.
    pub serve: Arc<S>,
    /// What a peer is to access rules.
    pub identify: Identify,
    /// Limits of what all peers together hold.
    pub limits: Limits,
    /// Reads the time.
    pub clock: Arc<dyn Clock>,
    /// Has a task for each connection.
    pub tasks: TaskTracker,
    /// Cancelled to end: connections end after their requests, and sockets accept no more.
    pub draining: CancellationToken,
    /// Cancelled when the port, too, is to accept no more.
    pub closing: CancellationToken,
}

/// The loopback port.
#[derive(Debug)]
pub struct PortOptions {
    /// What access rules call it.
    pub name: Arc<str>,
    /// The keys that clients rely on.
    pub keys: Keys,
    /// How long a handle is valid.
    pub handle_lifetime: Duration,
    /// Whether a connection of which the kernel does not say whose it is gets no answer.
    pub require_uid: bool,
}

/// The listeners of one proxy. They share the places for connections.
#[expect(missing_debug_implementations, reason = "what serves need not have it")]
pub struct Listeners<S> {
    parts: ListenerParts<S>,
    seats: Seats,
}

/// A loopback port that gives out handles for itself.
#[derive(Debug)]
pub struct Port {
    name: Arc<str>,
    tls: Arc<rustls::ServerConfig>,
    handles: HandleKey,
    handle_lifetime: Duration,
    require_uid: bool,
    /// Whose a connection is.
    owner: fn(SocketAddr, SocketAddr) -> Result<u32, OwnerError>,
}

/// An answer of what serves, or of a listener.
type Answer<S> = Response<Either<Whole<Bytes>, <S as Serve>::Body>>;

impl<S: Serve> Listeners<S> {
    /// Listeners that do not accept yet.
    pub fn new(parts: ListenerParts<S>) -> Arc<Self> {
        let seats = Seats::new(parts.limits, parts.draining.clone());
        Arc::new(Self { parts, seats })
    }

    /// Whether the user of this process can be identified.
    pub fn identifies_its_own(&self) -> bool {
        self.seats.user(rustix::process::geteuid().as_raw()).is_some()
    }

    /// A port with these options.
    ///
    /// # Errors
    ///
    /// There is no certificate for it.
    pub fn port(&self, options: PortOptions) -> Result<Arc<Port>, AuthorityError> {
        let PortOptions { name, keys, handle_lifetime, require_uid } = options;
        let leaf = Leaf::new(keys.authority, Arc::clone(&self.parts.clock))?;
        let tls = Arc::new(server_config(leaf)?);
        Ok(Arc::new(Port { name, tls, handles: keys.handles, handle_lifetime, require_uid, owner }))
    }

    /// Serves HTTP/1.1 on the newest of `listeners`, which is the Unix socket of that name, until the proxy drains.
    pub async fn serve_socket(
        self: Arc<Self>,
        name: Arc<str>,
        listeners: watch::Receiver<Arc<UnixListener>>,
    ) {
        accept_each(&self.parts.draining, listeners, |stream| socket::admit(&self, stream, &name)).await;
    }

    /// Gives out handles for `port` on the newest of `listeners`, until the proxy drains.
    pub async fn serve_handles(
        self: Arc<Self>,
        port: Arc<Port>,
        listeners: watch::Receiver<Arc<UnixListener>>,
    ) {
        accept_each(&self.parts.draining, listeners, |stream| handles::admit(&self, stream, &port)).await;
    }

    /// Serves HTTP/2 and HTTP/1.1 with TLS on `listener`, until it is closing. While the proxy drains, a connection has one request.
    pub async fn serve_port(self: Arc<Self>, port: Arc<Port>, listener: Arc<TcpListener>) {
        // It does not change.
        let listeners = watch::Sender::new(listener);
        let admit = |stream| port::admit(&self, stream, &port);
        accept_each(&self.parts.closing, listeners.subscribe(), admit).await;
    }

    /// A place for a connection of `peer`.
    fn seat(&self, peer: &Peer) -> Option<Arc<Seat>> {
        match self.seats.take(peer) {
            Ok(seat) => Some(Arc::new(seat)),
            Err(Full { limit, who, most }) => {
                debug!(
                    uid = peer.uid,
                    pid = peer.pid,
                    ?limit,
                    ?who,
                    most,
                    "a connection got no place, and was closed"
                );
                None
            }
        }
    }

    /// What a caller of the loopback port is to access rules. Only its uid is known.
    ///
    /// The kernel finds the user of a connection by its addresses, and says root of some that no process has: so root has the
    /// rights of a rule that names it, and not those of an owner.
    fn at_port(&self, port: &Port, uid: u32) -> Principal {
        Principal {
            uid: self.seats.user(uid),
            listener: Arc::clone(&port.name),
            is_owner: self.seats.is_own(uid),
            ..Principal::default()
        }
    }

    /// Records a refusal of the port or of its socket for handles.
    fn refused_at_port(&self, port: &Port, uid: Option<u32>, why: &Refused) {
        let unknown = || Principal { listener: Arc::clone(&port.name), ..Principal::default() };
        let principal = uid.map_or_else(unknown, |uid| self.at_port(port, uid));
        self.parts.serve.refused(Arc::new(Caller { principal, pid: None, rule: None }), why);
    }
}

/// The answer that a listener gives itself.
fn refusal<S: Serve>(refused: Refused) -> Answer<S> {
    refused.into_response::<Whole<Bytes>>().map(Either::Left)
}

/// Whether a client of this machine could have sent to this address.
fn is_loopback(address: &SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

#[cfg(test)]
mod tests;
