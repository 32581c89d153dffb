//! An API server with configurable responses, and proxies in front of it.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, copy_bidirectional},
    net::{TcpListener, TcpStream},
    sync::{Semaphore, mpsc},
    task::JoinSet,
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{ServerConfig, crypto::aws_lc_rs::default_provider, pki_types::PrivatePkcs8KeyDer},
};

use credbroker_credential::Cluster;

/// The certificate authority of a cluster.
pub(super) struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub(super) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub(super) fn pem(&self) -> String {
        self.0.pem()
    }

    /// The acceptor of a server with a certificate for `name`.
    fn acceptor(&self, name: &str) -> TlsAcceptor {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new([name.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap().der().clone();
        let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate], PrivatePkcs8KeyDer::from(key.serialize_der()).into());
        TlsAcceptor::from(Arc::new(config.unwrap()))
    }
}

/// What a server does with a request.
#[derive(Clone)]
pub(super) enum Answer {
    /// Sends this response to each request.
    Says(String),
    /// Sends this head, and then the same letter until writing fails.
    Floods(&'static str),
    /// Sends this when the semaphore has a permit.
    Waits(Arc<Semaphore>, &'static str),
}

/// An event at the server.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum Event {
    /// Head and body of a request.
    Request(String),
    /// The client ended the connection.
    Closed,
}

/// A running server. It ends when it is dropped.
pub(super) struct Server {
    pub(super) address: SocketAddr,
    pub(super) cluster: Cluster,
    events: mpsc::UnboundedReceiver<Event>,
    connections: Arc<AtomicUsize>,
    _accepting: JoinSet<()>,
}

impl Server {
    /// A server with a certificate for its address.
    pub(super) async fn start(answer: Answer) -> Self {
        Self::called(&Authority::new(), "127.0.0.1", answer).await
    }

    /// A server with a certificate for `name`.
    pub(super) async fn called(authority: &Authority, name: &str, answer: Answer) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, acceptor) = (listener.local_addr().unwrap(), authority.acceptor(name));
        let (seen, events) = mpsc::unbounded_channel();
        let connections = Arc::new(AtomicUsize::new(0));
        let accepted = Arc::clone(&connections);
        let mut accepting = JoinSet::new();
        accepting.spawn(async move {
            let mut serving = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                accepted.fetch_add(1, Ordering::SeqCst);
                let (acceptor, answer, seen) = (acceptor.clone(), answer.clone(), seen.clone());
                serving.spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    converse(stream, answer, &seen).await;
                    drop(seen.send(Event::Closed));
                });
            }
        });
        let cluster = Cluster {
            server: format!("https://{address}"),
            certificate_authority_data: authority.pem().into(),
            ..Cluster::default()
        };
        Self { address, cluster, events, connections, _accepting: accepting }
    }

    /// Waits for the next event.
    pub(super) async fn next(&mut self) -> Event {
        self.events.recv().await.unwrap()
    }

    /// Whether there is no other event.
    pub(super) fn saw_no_more(&mut self) -> bool {
        self.events.try_recv().is_err()
    }

    /// The number of connections so far.
    pub(super) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

/// Answers until the client ends the connection.
async fn converse(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    answer: Answer,
    seen: &mpsc::UnboundedSender<Event>,
) {
    while let Some(mut request) = head(&mut stream).await {
        let length = |line: &str| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok();
        let mut body = vec![0; request.lines().find_map(length).unwrap_or(0)];
        stream.read_exact(&mut body).await.unwrap();
        request.push_str(std::str::from_utf8(&body).unwrap());
        seen.send(Event::Request(request)).unwrap();
        let text = match &answer {
            Answer::Says(text) => text,
            Answer::Floods(head) => *head,
            Answer::Waits(gate, text) => {
                gate.acquire().await.unwrap().forget();
                *text
            }
        };
        // The client may disconnect at any time.
        let mut open = stream.write_all(text.as_bytes()).await.is_ok() && stream.flush().await.is_ok();
        while open && matches!(answer, Answer::Floods(_)) {
            open = stream.write_all(&[b'x'; 1 << 14]).await.is_ok();
        }
    }
}

/// The text up to an empty line; `None` if the stream ends before.
async fn head(stream: &mut (impl AsyncRead + Unpin)) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    String::from_utf8(head).ok()
}

/// The protocol of a proxy.
#[derive(Clone, Copy, Debug)]
pub(super) enum Speaks {
    Http,
    Https,
    Socks5,
}

/// A proxy that connects every request to one server.
pub(super) struct Proxy {
    pub(super) url: String,
    /// The requests that it got.
    asked: mpsc::UnboundedReceiver<String>,
    _accepting: JoinSet<()>,
}

impl Proxy {
    pub(super) async fn start(speaks: Speaks, authority: &Authority, to: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let acceptor = authority.acceptor("127.0.0.1");
        let (seen, asked) = mpsc::unbounded_channel();
        let mut accepting = JoinSet::new();
        accepting.spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                match speaks {
                    Speaks::Http => connect(stream, to, &seen).await,
                    Speaks::Https => connect(acceptor.accept(stream).await.unwrap(), to, &seen).await,
                    Speaks::Socks5 => socks(stream, to, &seen).await,
                }
            }
        });
        let (scheme, user) = match speaks {
            Speaks::Http => ("http", "someone:se%40cret@"),
            Speaks::Https => ("https", ""),
            Speaks::Socks5 => ("socks5", ""),
        };
        Self { url: format!("{scheme}://{user}{address}"), asked, _accepting: accepting }
    }

    pub(super) async fn asked(&mut self) -> String {
        self.asked.recv().await.unwrap()
    }
}

async fn connect(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    to: SocketAddr,
    seen: &mpsc::UnboundedSender<String>,
) {
    seen.send(head(&mut stream).await.unwrap()).unwrap();
    stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
    relay(stream, to).await;
}

/// SOCKS5 (RFC 1928) without authentication, to a host name.
async fn socks(mut stream: TcpStream, to: SocketAddr, seen: &mpsc::UnboundedSender<String>) {
    let mut hello = [0; 3];
    stream.read_exact(&mut hello).await.unwrap();
    assert_eq!(hello, [5, 1, 0]);
    stream.write_all(&[5, 0]).await.unwrap();
    let mut request = [0; 5];
    stream.read_exact(&mut request).await.unwrap();
    assert_eq!(request[..4], [5, 1, 0, 3]);
    let mut name = vec![0; request[4].into()];
    stream.read_exact(&mut name).await.unwrap();
    let port = stream.read_u16().await.unwrap();
    seen.send(format!("{}:{port}", String::from_utf8(name).unwrap())).unwrap();
    stream.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).await.unwrap();
    relay(stream, to).await;
}

async fn relay(mut stream: impl AsyncRead + AsyncWrite + Unpin, to: SocketAddr) {
    let mut server = TcpStream::connect(to).await.unwrap();
    // Either side may close first.
    drop(copy_bidirectional(&mut stream, &mut server).await);
}
