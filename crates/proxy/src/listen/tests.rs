//! Raw bytes to listeners whose requests a stub answers.

use std::{
    io,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use credbroker_observe::clock::SystemClock;
use credbroker_test_support::private_directory;
use http::{HeaderValue, StatusCode, header};
use hyper_util::rt::TokioIo;
use rustix::process::geteuid;
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName, pem::PemObject as _},
};
use secrecy::ExposeSecret as _;
use tempfile::TempDir;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::{TcpStream, UnixStream},
    time::{Instant, timeout},
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use super::*;
use crate::{AUTHORITY, handle::Claims, owner::OwnerError};

const TARGET: &str = "/clusters/fleet/prod";
/// The end of a handle that does not end soon.
const LATER: u64 = 4_000_000_000;

/// Says who calls, or echoes what comes through a tunnel. The only target that exists is [`TARGET`]. Its use is shown if the flag is
/// set.
struct Stub(TaskTracker, Mutex<Vec<Refusal>>, AtomicBool);

/// The code, the listener and the uid of a refusal.
type Refusal = (u16, String, Option<u32>);

impl Serve for Stub {
    type Body = Whole<Bytes>;

    async fn answer(
        self: Arc<Self>,
        caller: Arc<Caller>,
        mut request: Request<Incoming>,
    ) -> Response<Whole<Bytes>> {
        if request.headers().contains_key(header::UPGRADE) {
            let upgraded = hyper::upgrade::on(&mut request);
            self.0.spawn(async move {
                let (mut read, mut write) = tokio::io::split(TokioIo::new(upgraded.await.unwrap()));
                drop(tokio::io::copy(&mut read, &mut write).await);
            });
            let mut answer = Response::new(Whole::default());
            *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
            answer.headers_mut().insert(header::UPGRADE, HeaderValue::from_static("websocket"));
            answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
            return answer;
        }
        let Principal { uid, listener, is_owner, .. } = &caller.principal;
        let handle = request.headers().contains_key(header::AUTHORIZATION);
        Response::new(Whole::from(format!(
            "uid {uid:?} at {listener}, owner {is_owner}, rule {:?}, handle {handle}",
            caller.rule
        )))
    }

    async fn rule(&self, _: &Caller, target: &TargetName) -> Result<Option<Arc<str>>, Refused> {
        if target.to_string() == TARGET { Ok(Some("agents".into())) } else { Err(Refused::target()) }
    }

    async fn ready(&self, caller: &Caller, target: &TargetName) -> Result<Option<Arc<str>>, Refused> {
        self.rule(caller, target).await
    }

    fn refused(&self, caller: Arc<Caller>, refused: &Refused) {
        let Principal { uid, listener, .. } = &caller.principal;
        self.1.lock().unwrap().push((refused.code.as_u16(), listener.to_string(), *uid));
    }

    async fn targets(&self, _: &Caller) -> Vec<(String, String)> {
        vec![("fleet/prod".to_owned(), TARGET.to_owned())]
    }

    fn usage(&self, _: &Caller) -> Option<Vec<TargetUse>> {
        let (name, path) = ("fleet/prod".to_owned(), TARGET.to_owned());
        let used = TargetUse { name, path, requests: 7, streams: 2, bytes_up: 3, bytes_down: 4 };
        self.2.load(Ordering::Relaxed).then(|| vec![used])
    }
}

/// A place of a connection, which ends with `draining`.
pub(super) fn seat(draining: &CancellationToken) -> Arc<Seat> {
    let seats = Seats::new(Limits { connections: 8, bytes: 4 << 20, runs: 1 }, draining.clone());
    Arc::new(seats.take(&Peer { listener: 0, uid: 1, gid: 1, pid: None }).unwrap())
}

struct Test {
    directory: TempDir,
    listeners: Arc<Listeners<Stub>>,
    port: Arc<Port>,
    address: SocketAddr,
}

/// Whose a connection is.
type Owner = fn(SocketAddr, SocketAddr) -> Result<u32, OwnerError>;

#[expect(clippy::needless_pass_by_value, reason = "an `Identify`")]
fn principal(identity: PeerIdentity, listener: Arc<str>) -> Principal {
    Principal {
        uid: identity.uid,
        gid: identity.gid,
        listener,
        is_owner: identity.is_owner,
        ..Principal::default()
    }
}

impl Test {
    fn start() -> Self {
        Self::with(|_| {})
    }

    /// A port, a socket and the socket for handles.
    fn with(change: impl FnOnce(&mut Port)) -> Self {
        let (directory, tasks) = (private_directory(), TaskTracker::new());
        let listeners = Listeners::new(ListenerParts {
            serve: Arc::new(Stub(tasks.clone(), Mutex::default(), AtomicBool::new(true))),
            identify: principal,
            limits: Limits { connections: 8, bytes: 4 << 20, runs: 1 },
            clock: Arc::new(SystemClock),
            tasks: tasks.clone(),
            draining: CancellationToken::new(),
            closing: CancellationToken::new(),
        });
        let port = listeners.port(PortOptions {
            name: "tls".into(),
            keys: Keys::open(directory.path()).unwrap(),
            handle_lifetime: Duration::from_secs(3600),
            require_uid: true,
        });
        let mut port = Arc::into_inner(port.unwrap()).unwrap();
        change(&mut port);
        let port = Arc::new(port);
        let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        tcp.set_nonblocking(true).unwrap();
        let (address, tcp) = (tcp.local_addr().unwrap(), TcpListener::from_std(tcp).unwrap());
        tasks.spawn(Arc::clone(&listeners).serve_port(Arc::clone(&port), Arc::new(tcp)));
        let unix = |name: &str| {
            watch::Sender::new(Arc::new(UnixListener::bind(directory.path().join(name)).unwrap())).subscribe()
        };
        tasks.spawn(Arc::clone(&listeners).serve_socket("proxy".into(), unix("s")));
        tasks.spawn(Arc::clone(&listeners).serve_handles(Arc::clone(&port), unix("h")));
        Self { directory, listeners, port, address }
    }

    fn handle(&self, uid: u32, rule: Option<&str>, target: &str, expires: u64) -> String {
        let claims = Claims { uid, rule: rule.map(Into::into), expires };
        self.port.handles.issue(&claims, target).expose_secret().to_owned()
    }

    fn own_handle(&self) -> String {
        self.handle(geteuid().as_raw(), Some("agents"), TARGET, LATER)
    }

    async fn tls(&self, alpn: &[&[u8]]) -> TlsStream<TcpStream> {
        let root = std::fs::read(self.directory.path().join(AUTHORITY)).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(&root).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
        let name = ServerName::try_from("127.0.0.1").unwrap();
        let stream = TcpStream::connect(self.address).await.unwrap();
        TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap()
    }

    /// The answer of the port to a GET with these headers.
    async fn at_port(&self, headers: &str) -> String {
        let request = format!("GET {TARGET}/api HTTP/1.1\r\nhost: {}\r\n{headers}\r\n", self.address);
        exchange(&mut self.tls(&[]).await, &request).await
    }

    async fn with_handle(&self, handle: &str) -> String {
        self.at_port(&format!("authorization: Bearer {handle}\r\n")).await
    }

    async fn unix(&self, name: &str) -> UnixStream {
        UnixStream::connect(self.directory.path().join(name)).await.unwrap()
    }

    async fn at_socket(&self, name: &str, request: &str) -> String {
        exchange(&mut self.unix(name).await, request).await
    }
}

/// Sends `request`, and reads one answer with a length, or until the end.
async fn exchange(stream: &mut (impl AsyncRead + AsyncWrite + Unpin), request: &str) -> String {
    stream.write_all(request.as_bytes()).await.unwrap();
    answer(stream).await
}

async fn answer(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut got = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&got).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            if length.is_none_or(|length| body.len() >= length.parse().unwrap()) {
                return text;
            }
        }
        match stream.read_buf(&mut got).await {
            Ok(0) | Err(_) => return text,
            Ok(_) => {}
        }
    }
}

fn code(answer: &str) -> &str {
    answer.get(9..12).unwrap_or(answer)
}

fn own() -> u32 {
    geteuid().as_raw()
}

#[tokio::test]
async fn a_handle_of_the_user_whose_the_connection_is_opens_its_target() {
    let test = Test::start();
    let answer = test.with_handle(&test.own_handle()).await;
    assert_eq!(code(&answer), "200", "{answer}");
    let expected = format!("uid Some({}) at tls, owner true, rule Some(\"agents\"), handle false", own());
    assert!(answer.ends_with(&expected), "{answer}");
}

#[tokio::test]
async fn what_is_not_a_handle_for_this_target_is_refused_without_a_challenge() {
    let test = Test::start();
    let own_handle = test.own_handle();
    let other_rule = test.handle(own(), Some("before"), TARGET, LATER);
    for (headers, why) in [
        (String::new(), "a handle is missing"),
        ("authorization: Basic dTpw\r\n".to_owned(), "a handle is missing"),
        ("authorization: Bearer x\r\n".to_owned(), "not a handle"),
        (format!("authorization: Bearer {}\r\n", &own_handle[..own_handle.len() - 4]), "not a handle"),
        (
            format!("authorization: Bearer {}\r\n", test.handle(own(), None, "/clusters/fleet/x", LATER)),
            "not a handle",
        ),
        (
            format!("authorization: Bearer {}\r\n", test.handle(own(), Some("agents"), TARGET, 1)),
            "has expired",
        ),
        (format!("authorization: Bearer {other_rule}\r\n"), "access rules have changed"),
    ] {
        let answer = test.at_port(&headers).await;
        assert_eq!(code(&answer), "401", "{headers} {answer}");
        assert!(answer.contains(why) && answer.contains("\"Unauthorized\""), "{headers} {answer}");
        assert!(!answer.to_lowercase().contains("www-authenticate"), "{answer}");
    }
}

#[tokio::test]
async fn a_handle_is_of_no_use_to_another_user() {
    let test = Test::start();
    let answer = test.with_handle(&test.handle(own() + 1, Some("agents"), TARGET, LATER)).await;
    assert_eq!(code(&answer), "403", "{answer}");
    assert!(answer.contains("for another user"), "{answer}");
}

#[tokio::test]
async fn a_connection_without_an_owner_is_refused_unless_the_handle_alone_decides() {
    let owners: [Owner; 2] =
        [|_, _| Err(OwnerError::NoAnswer(io::ErrorKind::NotFound.into())), |_, _| Err(OwnerError::Unmapped)];
    for owner in owners {
        let test = Test::with(|port| port.owner = owner);
        let answer = test.with_handle(&test.own_handle()).await;
        assert_eq!(code(&answer), "403", "{answer}");
        assert!(answer.contains("requireUid"), "{answer}");
        let test = Test::with(|port| (port.owner, port.require_uid) = (owner, false));
        assert_eq!(code(&test.with_handle(&test.own_handle()).await), "200");
        assert_eq!(code(&test.at_port("").await), "401", "the handle still counts");
    }
}

#[tokio::test]
async fn a_connection_that_is_closed_gets_no_answer() {
    let owners: [Owner; 2] = [|_, _| Err(OwnerError::Closed), |_, _| Err(OwnerError::Other)];
    for closed in owners {
        let test = Test::with(|port| (port.owner, port.require_uid) = (closed, false));
        let mut stream = TcpStream::connect(test.address).await.unwrap();
        assert!(matches!(stream.read(&mut [0]).await, Ok(0) | Err(_)));
    }
}

#[tokio::test]
async fn what_a_listener_refuses_is_recorded_with_the_user_of_the_connection() {
    let test = Test::start();
    test.at_port("").await;
    test.with_handle(&test.handle(own() + 1, Some("agents"), TARGET, LATER)).await;
    test.at_socket("s", &format!("GET {TARGET}/api HTTP/1.1\r\nhost: evil.example\r\n\r\n")).await;
    test.at_socket("h", "POST /clusters/fleet/x HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
    assert_eq!(code(&test.with_handle(&test.own_handle()).await), "200");
    let uid = Some(own());
    let expected = [(401, "tls", uid), (403, "tls", uid), (421, "proxy", uid), (403, "tls", uid)];
    let expected = expected.map(|(code, listener, uid)| (code, listener.to_owned(), uid));
    assert_eq!(*test.listeners.parts.serve.1.lock().unwrap(), expected);
}

#[tokio::test]
async fn root_has_the_rights_of_no_owner_at_the_port() {
    let test = Test::with(|port| port.owner = |_, _| Ok(0));
    let answer = test.with_handle(&test.handle(0, Some("agents"), TARGET, LATER)).await;
    assert!(answer.contains(&format!("uid Some(0) at tls, owner {}", own() == 0)), "{answer}");
    let test = Test::with(|port| port.owner = |_, _| Ok(4242));
    let answer = test.with_handle(&test.handle(4242, Some("agents"), TARGET, LATER)).await;
    assert!(answer.contains("uid Some(4242) at tls, owner false"), "{answer}");
}

#[tokio::test]
async fn browsers_get_nothing() {
    let test = Test::start();
    let handle = format!("authorization: Bearer {}\r\n", test.own_handle());
    for (headers, expected) in [
        ("origin: https://evil.example\r\n", "403"),
        ("origin: null\r\n", "403"),
        ("sec-fetch-site: cross-site\r\n", "403"),
        ("sec-fetch-site: same-origin\r\n", "403"),
        ("sec-fetch-site: none\r\n", "200"),
    ] {
        let answer = test.at_port(&format!("{handle}{headers}")).await;
        assert_eq!(code(&answer), expected, "{headers} {answer}");
        assert!(!answer.to_lowercase().contains("access-control"), "{answer}");
    }
    for host in ["evil.example", "127.0.0.1", "127.0.0.1:1", "kubernetes.default.svc"] {
        let request = format!("GET {TARGET}/api HTTP/1.1\r\nhost: {host}\r\n{handle}\r\n");
        let answer = exchange(&mut test.tls(&[]).await, &request).await;
        assert_eq!(code(&answer), "421", "{host} {answer}");
    }
    let request = format!("OPTIONS {TARGET}/api HTTP/1.1\r\nhost: {}\r\n{handle}\r\n", test.address);
    assert_eq!(code(&exchange(&mut test.tls(&[]).await, &request).await), "405");
}

#[tokio::test]
async fn a_socket_knows_its_peer_and_refuses_browsers_too() {
    let test = Test::start();
    for host in ["localhost", "127.0.0.1:40000", "[::1]:1"] {
        let answer = test.at_socket("s", &format!("GET {TARGET}/api HTTP/1.1\r\nhost: {host}\r\n\r\n")).await;
        assert_eq!(code(&answer), "200", "{answer}");
        assert!(answer.contains(&format!("uid Some({}) at proxy, owner true, rule None", own())), "{answer}");
    }
    for (head, expected) in [
        ("host: evil.example\r\n", "421"),
        ("host: localhost\r\norigin: http://evil.example\r\n", "403"),
        ("host: localhost\r\nsec-fetch-site: cross-site\r\n", "403"),
        ("", "400"),
    ] {
        let answer = test.at_socket("s", &format!("GET {TARGET}/api HTTP/1.1\r\n{head}\r\n")).await;
        assert_eq!(code(&answer), expected, "{head} {answer}");
    }
    let mut stream = test.unix("s").await;
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
    let answer = answer(&mut stream).await;
    assert!(!answer.as_bytes().starts_with(&[0]), "HTTP/2 is not served: {answer:?}");
}

#[tokio::test]
async fn a_socket_lists_the_targets_and_names_the_network_of_the_proxy() {
    let test = Test::start();
    let listed = test.at_socket("s", "GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
    let (_, body) = listed.split_once("\r\n\r\n").unwrap();
    let network = std::fs::read_link("/proc/self/ns/net").unwrap();
    let expected = serde_json::json!({
        "targets": [{"name": "fleet/prod", "path": TARGET}],
        "network": network.to_str().unwrap(),
    });
    assert_eq!(serde_json::from_str::<serde_json::Value>(body).unwrap(), expected);
}

#[tokio::test]
async fn a_handle_is_given_out_for_a_target_that_the_peer_may_use() {
    let test = Test::start();
    let ask = |method: &str, target: &str| format!("{method} {target} HTTP/1.1\r\nhost: localhost\r\n\r\n");
    let issued = test.at_socket("h", &ask("POST", TARGET)).await;
    assert_eq!(code(&issued), "200", "{issued}");
    assert!(issued.contains("cache-control: no-store"), "{issued}");
    let (_, body) = issued.split_once("\r\n\r\n").unwrap();
    let [token, expires, lifetime] = body.trim_end().split(' ').collect::<Vec<_>>().try_into().unwrap();
    assert!(lifetime == "3600" && expires.parse::<u64>().unwrap() > 1_700_000_000, "{body}");
    let answer = test.with_handle(token).await;
    assert!(answer.contains(&format!("uid Some({})", own())), "{answer}");
    for (method, target, expected) in [
        ("POST", "/clusters/fleet/other", "403"),
        ("POST", "/contexts/prod-0123456789ab", "403"),
        ("POST", "/", "404"),
        ("GET", TARGET, "405"),
        ("POST", "/clusters/fleet/../prod", "400"),
    ] {
        let answer = test.at_socket("h", &ask(method, target)).await;
        assert_eq!(code(&answer), expected, "{method} {target}: {answer}");
    }
}

#[tokio::test]
async fn the_port_speaks_http2_too() {
    let test = Test::start();
    let stream = test.tls(&[b"h2", b"http/1.1"]).await;
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let executor = hyper_util::rt::TokioExecutor::new();
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(executor, TokioIo::new(stream)).await.unwrap();
    let served = async {
        let uri = format!("https://{}{TARGET}/api", test.address);
        let request = |uri: &str| {
            let request =
                Request::get(uri).header(header::AUTHORIZATION, format!("Bearer {}", test.own_handle()));
            request.body(Whole::<Bytes>::default()).unwrap()
        };
        assert_eq!(sender.send_request(request(&uri)).await.unwrap().status(), 200);
        let rebound = uri.replace("127.0.0.1", "evil.example");
        assert_eq!(sender.send_request(request(&rebound)).await.unwrap().status(), 421);
    };
    tokio::select! {
        ended = connection => panic!("{ended:?}"),
        () = served => {}
    }
}

#[tokio::test]
async fn bytes_without_tls_and_oversized_heads_are_refused() {
    let test = Test::start();
    let mut plain = TcpStream::connect(test.address).await.unwrap();
    let answer =
        exchange(&mut plain, &format!("GET {TARGET}/api HTTP/1.1\r\nhost: {}\r\n\r\n", test.address)).await;
    assert!(!answer.contains("HTTP/1.1"), "{answer:?}");
    let long = format!("x: {}\r\n", "a".repeat(70 * 1024));
    let answer =
        test.at_socket("s", &format!("GET {TARGET}/api HTTP/1.1\r\nhost: localhost\r\n{long}\r\n")).await;
    assert_eq!(code(&answer), "431", "{answer}");
}

#[tokio::test(start_paused = true)]
#[expect(clippy::disallowed_methods, reason = "the paused clock")]
async fn a_head_that_takes_too_long_ends_the_connection_and_waiting_for_the_next_does_not() {
    let test = Test::start();
    let request = format!("GET {TARGET}/api HTTP/1.1\r\nhost: localhost\r\n\r\n");
    let is_in_time = |begun: Instant| assert!(begun.elapsed() < watched::HEAD * 2, "{:?}", begun.elapsed());
    for (head, why) in [("", "no request"), (&request[..20], "half a head")] {
        let begun = Instant::now();
        assert_eq!(exchange(&mut test.unix("s").await, head).await, "", "{why}");
        is_in_time(begun);
    }
    let mut kept = test.unix("s").await;
    for _ in 0..2 {
        assert_eq!(code(&exchange(&mut kept, &request).await), "200");
        tokio::time::sleep(watched::HEAD * 10).await;
    }
    let begun = Instant::now();
    assert_eq!(exchange(&mut kept, &request[..20]).await, "", "half of the next head");
    is_in_time(begun);
    let mut handshake = TcpStream::connect(test.address).await.unwrap();
    assert!(matches!(handshake.read(&mut [0]).await, Ok(0) | Err(_)), "no handshake");
}

#[tokio::test]
async fn a_tunnel_keeps_its_place() {
    let test = Test::start();
    let mut tunnels = Vec::new();
    let upgrade = format!(
        "GET {TARGET}/api HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n"
    );
    // More than the share of a process: the rest gets no place, because tunnels are never idle.
    for _ in 0..8 {
        let mut stream = test.unix("s").await;
        let answer = exchange(&mut stream, &upgrade).await;
        if code(&answer) == "101" {
            tunnels.push(stream);
        }
    }
    assert!((2..8).contains(&tunnels.len()), "{}", tunnels.len());
    for tunnel in &mut tunnels {
        tunnel.write_all(b"echo").await.unwrap();
        let mut echo = [0; 4];
        tunnel.read_exact(&mut echo).await.unwrap();
        assert_eq!(&echo, b"echo");
    }
    drop(tunnels);
    let again = async {
        while code(&test.at_socket("s", &upgrade).await) != "101" {
            tokio::task::yield_now().await;
        }
    };
    timeout(Duration::from_secs(20), again).await.expect("their places are free");
}

#[tokio::test]
async fn a_drain_ends_idle_connections_and_lets_the_next_request_end() {
    let test = Test::start();
    let request = format!("GET {TARGET}/api HTTP/1.1\r\nhost: localhost\r\n\r\n");
    let (mut idle, mut busy) = (test.unix("s").await, test.unix("s").await);
    for stream in [&mut idle, &mut busy] {
        assert_eq!(code(&exchange(stream, &request).await), "200");
    }
    test.listeners.parts.draining.cancel();
    let last = exchange(&mut busy, &request).await;
    assert_eq!(code(&last), "200", "{last}");
    for stream in [&mut idle, &mut busy] {
        assert_eq!(answer(stream).await, "");
    }
    test.listeners.parts.closing.cancel();
    test.listeners.parts.tasks.close();
    timeout(Duration::from_secs(20), test.listeners.parts.tasks.wait()).await.expect("all tasks have ended");
}

#[tokio::test]
async fn the_port_answers_new_connections_until_it_closes_and_each_ends_after_its_request() {
    let test = Test::start();
    test.listeners.parts.draining.cancel();
    for alpn in [&[][..], &[&b"http/1.1"[..]]] {
        let mut stream = test.tls(alpn).await;
        let request = format!(
            "GET {TARGET}/api HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\n\r\n",
            test.address,
            test.own_handle()
        );
        let answer =
            timeout(Duration::from_secs(20), exchange(&mut stream, &request)).await.expect("an answer");
        assert!(code(&answer) == "200" && answer.contains("connection: close"), "{answer}");
    }
    test.listeners.parts.closing.cancel();
    test.listeners.parts.tasks.close();
    timeout(Duration::from_secs(20), test.listeners.parts.tasks.wait()).await.expect("all tasks have ended");
}

#[tokio::test]
async fn both_sockets_say_what_the_proxy_does_to_those_who_may_list() {
    let test = Test::start();
    let get = "GET /status HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let open = test.tls(&[]).await;
    for socket in ["s", "h"] {
        let answer = test.at_socket(socket, get).await;
        assert_eq!(code(&answer), "200", "{socket} {answer}");
        let expected = "\"targets\":[{\"name\":\"fleet/prod\",\"path\":\"/clusters/fleet/prod\",\"requests\":7,\"streams\":2,\"bytesUp\":3,\"bytesDown\":4}]}";
        assert!(answer.contains("{\"connections\":") && answer.ends_with(expected), "{socket} {answer}");
        let foreign = test.at_socket(socket, &get.replace("localhost", "evil.example")).await;
        assert_eq!(code(&foreign), "421", "{foreign}");
        let other = test.at_socket(socket, &get.replace("GET", "POST")).await;
        assert!(!other.contains("requests"), "{other}");
    }
    drop(open);
    test.listeners.parts.serve.2.store(false, Ordering::Relaxed);
    for socket in ["s", "h"] {
        let answer = test.at_socket(socket, get).await;
        assert_eq!(code(&answer), "403", "{socket} {answer}");
        assert!(answer.contains("no access rule allows this process to `list`"), "{answer}");
        assert!(!answer.contains("fleet/prod"), "{answer}");
    }
    assert_eq!(code(&test.at_port("").await), "401", "the port does not say it");
}
