//! An HTTPS server that answers reads as a Kubernetes API server does, as far as `kubectl get` and our own clients look, and
//! that remembers who asked for what. It is a hub of `ClusterProfile`s too, with the faults that a hub has. What it serves, a
//! test puts there: it has no schema, no selectors and no writes. `tests/interop/real` uses a real API server.
#![expect(
    clippy::indexing_slicing,
    reason = "a member that JSON lacks is null, and only made objects are written to"
)]

mod answer;
mod authority;
mod cluster_profiles;
mod collection;
mod counts;
mod faults;
mod flood;
mod handshake;
mod identity;
mod list;
mod listener;
mod query;
mod resource;
mod routes;
#[cfg(test)]
mod tests;
mod watch;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustls::server::danger::ClientCertVerifier;
use tokio::net::TcpSocket;
use tokio::sync::{mpsc, oneshot, watch as channel};

use self::authority::Authority;
use self::collection::Store;
use self::counts::Counts;
use self::faults::{Order, Signals};

pub use self::faults::Flood;
pub use self::resource::Collection;

/// What the server takes as proof of an identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accepts {
    /// A bearer token that [`ApiServer::accept_token`] named.
    Tokens,
    /// A client certificate that [`ApiServer::issue_client_certificate`] made.
    Certificates,
    /// Any of the two.
    Either,
}

/// One request as the server saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenRequest {
    /// The bearer token, accepted or not.
    pub token: Option<String>,
    /// The common name of the client certificate, accepted or not.
    pub certificate: Option<String>,
    /// `GET`, `POST`, …
    pub method: String,
    /// The path, without the query.
    pub path: String,
    /// The query as it was sent, or nothing.
    pub query: String,
    /// What the client sent as the body.
    pub body: String,
    /// How the server answered.
    pub status: u16,
    /// Which connection it came on, counted from 1.
    pub connection: u64,
}

/// A running server. It ends when it is dropped.
///
/// As the real one does, it asks for a client certificate without demanding one, and answers 401 to an identity that it
/// does not accept, also to a certificate that expired while its connection was open.
#[derive(Debug)]
pub struct ApiServer {
    address: SocketAddr,
    authority: Authority,
    state: Arc<State>,
    /// Bound to the address without listening, so that no other process gets the port while the server is away.
    _place: TcpSocket,
    orders: mpsc::UnboundedSender<Order>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl ApiServer {
    /// Starts a server on a free port of 127.0.0.1, with its own certificate authority.
    pub fn start(accepts: Accepts) -> Self {
        let authority = Authority::new();
        let state = Arc::new(State {
            accepts,
            verifier: authority.client_verifier(),
            tokens: Mutex::default(),
            requests: Mutex::default(),
            forbidden: Mutex::default(),
            store: Mutex::default(),
            connections: AtomicU64::new(0),
            open: channel::Sender::default(),
            counts: channel::Sender::default(),
            signals: channel::Sender::default(),
        });
        let place = TcpSocket::new_v4().expect("a socket");
        place.set_reuseaddr(true).expect("an option of every socket");
        place.bind((Ipv4Addr::LOCALHOST, 0).into()).expect("a free port");
        let address = place.local_addr().expect("the port");
        let socket = TcpListener::bind(address).expect("a second socket in the same place");
        let (orders, ordered) = mpsc::unbounded_channel();
        let (stop, stopped) = oneshot::channel();
        let tls = handshake::server_config(&authority);
        let serving = Arc::clone(&state);
        let thread = std::thread::spawn(move || listener::run(socket, tls, serving, ordered, stopped));
        Self { address, authority, state, _place: place, orders, stop: Some(stop), thread: Some(thread) }
    }

    /// The address for a kubeconfig's `server`.
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// Where the server listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The certificate by which clients know the server, as PEM.
    pub fn ca_pem(&self) -> String {
        self.authority.ca_pem()
    }

    /// Takes `token` as an identity from now on.
    pub fn accept_token(&self, token: &str) {
        lock(&self.state.tokens).insert(token.to_owned());
    }

    /// Answers 401 to `token` from now on.
    pub fn revoke_token(&self, token: &str) {
        lock(&self.state.tokens).remove(token);
    }

    /// A client certificate and its key, as PEM, that the server accepts for `valid_for`.
    pub fn issue_client_certificate(&self, common_name: &str, valid_for: Duration) -> (String, String) {
        self.authority.issue_client_certificate(common_name, valid_for)
    }

    /// How many connections finished their TLS handshake.
    pub fn connections(&self) -> u64 {
        self.state.connections.load(Ordering::SeqCst)
    }

    /// How many connections are open now that presented this common name, or no certificate.
    pub fn open_connections(&self, certificate: Option<&str>) -> usize {
        open_of(&self.state.open.borrow(), certificate)
    }

    /// Waits until so many are open. Panics when that takes longer than half a minute.
    pub async fn until_open(&self, certificate: Option<&str>, count: usize) {
        let mut open = self.state.open.subscribe();
        let reached = open.wait_for(|open| open_of(open, certificate) == count);
        let reached = tokio::time::timeout(Duration::from_secs(30), reached).await.is_ok();
        assert!(reached, "{count} connections of {certificate:?}: {:?}", self.state.open.borrow());
    }

    /// Every request so far, in the order of their answers.
    pub fn requests(&self) -> Vec<SeenRequest> {
        lock(&self.state.requests).clone()
    }

    /// The tokens that requests carried, each once.
    pub fn seen_tokens(&self) -> Vec<String> {
        distinct(self.requests().into_iter().filter_map(|request| request.token))
    }

    /// The common names of the certificates that requests came with, each once.
    pub fn seen_certificates(&self) -> Vec<String> {
        distinct(self.requests().into_iter().filter_map(|request| request.certificate))
    }

    /// Forgets the requests so far.
    pub fn forget_requests(&self) {
        lock(&self.state.requests).clear();
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            assert!(thread.join().is_ok() || std::thread::panicking(), "the API server panicked");
        }
    }
}

#[derive(Debug)]
struct State {
    accepts: Accepts,
    verifier: Arc<dyn ClientCertVerifier>,
    tokens: Mutex<HashSet<String>>,
    requests: Mutex<Vec<SeenRequest>>,
    forbidden: Mutex<BTreeSet<(String, Collection)>>,
    store: Mutex<Store>,
    connections: AtomicU64,
    open: channel::Sender<Open>,
    counts: channel::Sender<Counts>,
    signals: channel::Sender<Signals>,
}

/// Open connections by the common name that they presented.
type Open = BTreeMap<Option<String>, usize>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn open_of(open: &Open, certificate: Option<&str>) -> usize {
    open.iter().filter(|(name, _)| name.as_deref() == certificate).map(|(_, count)| count).sum()
}

fn distinct(values: impl Iterator<Item = String>) -> Vec<String> {
    values.collect::<BTreeSet<_>>().into_iter().collect()
}
