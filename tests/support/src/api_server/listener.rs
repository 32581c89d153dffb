//! The accept loop, on its own thread and runtime, so that a test may block.

use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::State;
use super::answer::answer;
use super::faults::{Order, What};
use super::identity::Presented;

/// One client, as every request on its connection needs it.
#[derive(Debug)]
pub(super) struct Connection {
    /// Counted from 1.
    pub(super) number: u64,
    pub(super) presented: Presented,
    pub(super) cut: Cut,
}

/// Ends a connection by a reset. A second handle of the socket, since the first belongs to TLS.
#[derive(Clone, Debug)]
pub(super) struct Cut {
    socket: Arc<OwnedFd>,
    times: watch::Receiver<u64>,
}

impl Cut {
    /// Resolves when the connection is to be dropped immediately; then its close is a reset.
    pub(super) async fn requested(&mut self) {
        // The accept loop, which has the sender, outlives every connection.
        drop(self.times.changed().await);
        let set = rustix::net::sockopt::set_socket_linger(&self.socket, Some(Duration::ZERO));
        set.expect("an option of every socket");
    }
}

/// Serves until `stopped` resolves; then the runtime goes, and every connection with it.
pub(super) fn run(
    socket: TcpListener,
    tls: Arc<rustls::ServerConfig>,
    state: Arc<State>,
    orders: mpsc::UnboundedReceiver<Order>,
    stopped: oneshot::Receiver<()>,
) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async move {
        tokio::select! { () = accept(socket, tls, state, orders) => {}, _ = stopped => {} }
    });
}

async fn accept(
    socket: TcpListener,
    tls: Arc<rustls::ServerConfig>,
    state: Arc<State>,
    mut orders: mpsc::UnboundedReceiver<Order>,
) {
    let address = socket.local_addr().expect("the port");
    let mut socket = Some(listening(socket));
    let cut = watch::Sender::new(0);
    let mut connections = JoinSet::new();
    loop {
        let accepted = async {
            let Some(socket) = &socket else { return std::future::pending().await };
            loop {
                match socket.accept().await {
                    Ok((stream, _)) => break stream,
                    Err(_) => tokio::task::yield_now().await,
                }
            }
        };
        tokio::select! {
            stream = accepted => {
                let Ok(handle) = stream.as_fd().try_clone_to_owned() else { continue };
                let cut = Cut { socket: Arc::new(handle), times: cut.subscribe() };
                connections.spawn(serve(stream, TlsAcceptor::from(Arc::clone(&tls)), Arc::clone(&state), cut));
            }
            Some(Order { what, done }) = orders.recv() => {
                match what {
                    What::Cut => {}
                    What::GoAway => socket = None,
                    What::ComeBack => socket = Some(socket.take().unwrap_or_else(|| listen(address))),
                }
                if what != What::ComeBack {
                    cut.send_modify(|times| *times += 1);
                    while connections.join_next().await.is_some() {}
                }
                // The sender may have given up.
                done.send(()).ok();
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

/// The port is still the server's: it holds a socket there that does not listen.
fn listen(address: SocketAddr) -> tokio::net::TcpListener {
    listening(TcpListener::bind(address).expect("the server's own port"))
}

fn listening(socket: TcpListener) -> tokio::net::TcpListener {
    socket.set_nonblocking(true).expect("a socket for tokio");
    tokio::net::TcpListener::from_std(socket).expect("a socket for tokio")
}

async fn serve(stream: TcpStream, acceptor: TlsAcceptor, state: Arc<State>, mut cut: Cut) {
    let handed = cut.clone();
    tokio::select! {
        () = converse(stream, acceptor, state, handed) => {}
        () = cut.requested() => {}
    }
}

async fn converse(stream: TcpStream, acceptor: TlsAcceptor, state: Arc<State>, cut: Cut) {
    let Ok(stream) = acceptor.accept(stream).await else { return };
    let number = state.connections.fetch_add(1, Ordering::SeqCst) + 1;
    let chain = stream.get_ref().1.peer_certificates().unwrap_or_default();
    let presented = Presented(chain.iter().map(|certificate| certificate.clone().into_owned()).collect());
    let _open = OpenConnection::new(&state, presented.common_name());
    let connection = Connection { number, presented, cut };
    let service = service_fn(|request| answer(&state, &connection, request));
    // A client that disconnects does not fail the server.
    drop(http1::Builder::new().serve_connection(TokioIo::new(stream), service).with_upgrades().await);
}

/// Counts as an open connection, also to its end by a cut.
struct OpenConnection<'a> {
    state: &'a State,
    name: Option<String>,
}

impl<'a> OpenConnection<'a> {
    fn new(state: &'a State, name: Option<String>) -> Self {
        state.open.send_modify(|open| *open.entry(name.clone()).or_default() += 1);
        Self { state, name }
    }
}

impl Drop for OpenConnection<'_> {
    fn drop(&mut self) {
        self.state.open.send_modify(|open| *open.entry(self.name.take()).or_default() -= 1);
    }
}
