//! API servers that treat their connections badly.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use credbroker_proto::v1;
use credbroker_proxy::{Options, Times};
use http::{Request, StatusCode};
use http_body::{Body, Frame};
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::{client::conn::http2::SendRequest, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream, UnixStream},
    sync::mpsc::{self, UnboundedReceiver},
    time::timeout,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

use crate::{
    broker::issued,
    setting::{SOON, Setting, get, post, status},
    upgrades::exec,
};

type Stream = TlsStream<TcpStream>;

/// An API server that serves each connection so.
async fn serving<F: Future<Output = ()> + Send + 'static>(
    serve: impl Fn(Stream) -> F + Clone + Send + Sync + 'static,
) -> v1::Cluster {
    let key = rcgen::generate_simple_self_signed(vec!["127.0.0.1".into()]).unwrap();
    let chain = vec![key.cert.der().clone()];
    let private = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.signing_key.serialize_der()));
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, private)
        .unwrap();
    let (acceptor, listener) =
        (TlsAcceptor::from(Arc::new(config)), TcpListener::bind("127.0.0.1:0").await.unwrap());
    let server = format!("https://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, serve) = (acceptor.clone(), serve.clone());
            tokio::spawn(async move {
                if let Ok(stream) = acceptor.accept(stream).await {
                    serve(stream).await;
                }
            });
        }
    });
    let authority = key.cert.pem().into_bytes();
    v1::Cluster { server, certificate_authority_data: Some(authority.into()), ..v1::Cluster::default() }
}

/// Reads the head of a request. Whether there was one.
async fn read_head(stream: &mut Stream) -> bool {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => return false,
        }
    }
    true
}

/// Answers the first request on each connection, and closes the connection after it has read the second one.
async fn forgetful(mut stream: Stream, requests: Arc<AtomicUsize>) {
    for turn in 0..2 {
        if !read_head(&mut stream).await {
            return;
        }
        requests.fetch_add(1, Ordering::SeqCst);
        if turn == 0 {
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").await.unwrap();
        }
    }
}

/// A client of the proxy with HTTP/2.
async fn http2<B>(setting: &Setting) -> SendRequest<B>
where
    B: Body<Data = Bytes, Error = Infallible> + Send + Unpin + 'static,
{
    let (ours, theirs) = UnixStream::pair().unwrap();
    let (proxy, caller) = (Arc::clone(&setting.proxy), Arc::clone(&setting.caller));
    let service = service_fn(move |request| {
        let (proxy, caller) = (Arc::clone(&proxy), Arc::clone(&caller));
        async move { Ok::<_, Infallible>(proxy.answer(&caller, request).await) }
    });
    let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    tokio::spawn(server.serve_connection(TokioIo::new(theirs), service));
    let connected = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(ours)).await;
    let (client, connection) = connected.unwrap();
    tokio::spawn(connection);
    client
}

impl Setting {
    fn moves_to(&self, cluster: v1::Cluster) {
        self.broker.enlist("paris", cluster.clone());
        self.broker.issue_for("paris", issued("2", None, Some("token-1")), cluster);
    }

    /// To one whose answer begins with `answer`, and has blanks after that if it `goes_on`. An item comes when the proxy has closed the
    /// connection.
    async fn moves_to_one_that_answers(&self, answer: &'static str, goes_on: bool) -> UnboundedReceiver<()> {
        let (ended, has_ended) = mpsc::unbounded_channel();
        let serve = move |mut stream: Stream| {
            let ended = ended.clone();
            async move {
                assert!(read_head(&mut stream).await);
                stream.write_all(format!("HTTP/1.1 200 OK\r\n{answer}").as_bytes()).await.unwrap();
                let (mut upload, mut download) = tokio::io::split(stream);
                tokio::spawn(
                    async move { while goes_on && download.write_all(&[b' '; 4096]).await.is_ok() {} },
                );
                drop(upload.read_to_end(&mut Vec::new()).await);
                ended.send(()).unwrap();
            }
        };
        self.moves_to(serving(serve).await);
        has_ended
    }
}

#[tokio::test]
async fn only_what_changes_nothing_is_sent_again_after_a_connection_was_lost() {
    let setting = Setting::with_token();
    let requests = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&requests);
    setting.moves_to(serving(move |stream| forgetful(stream, Arc::clone(&counted))).await);
    for expected in [1, 3, 5] {
        assert_eq!(setting.send(get("/version")).await.status(), StatusCode::OK);
        assert_eq!(requests.load(Ordering::SeqCst), expected);
    }
    let answer = setting.send(post("{}")).await;
    assert_eq!(answer.status(), StatusCode::BAD_GATEWAY);
    let message = status(&answer)["message"].as_str().unwrap().to_owned();
    assert!(message.starts_with("credbroker: no answer of cluster fleet/paris: "), "{message}");
    assert_eq!(requests.load(Ordering::SeqCst), 6, "once");
}

#[tokio::test]
async fn a_command_does_not_run_again_after_its_connection_was_lost() {
    let setting = Setting::with_token();
    let requests = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&requests);
    let serve = move |mut stream: Stream| {
        let counted = Arc::clone(&counted);
        async move {
            assert!(read_head(&mut stream).await);
            counted.fetch_add(1, Ordering::SeqCst);
        }
    };
    setting.moves_to(serving(serve).await);
    for (expected, protocol) in [(1, "websocket"), (2, "SPDY/3.1")] {
        assert_eq!(setting.send(exec(protocol)).await.status(), StatusCode::BAD_GATEWAY);
        assert_eq!(requests.load(Ordering::SeqCst), expected);
    }
}

#[tokio::test]
async fn a_change_of_protocol_that_the_client_did_not_ask_for_is_not_passed_on() {
    for protocol in ["websocket", "another"] {
        let setting = Setting::with_token();
        let serve = move |mut stream: Stream| async move {
            while read_head(&mut stream).await {
                let answer = format!(
                    "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: {protocol}\r\n\r\n"
                );
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        };
        setting.moves_to(serving(serve).await);
        for request in [get("/version"), exec("SPDY/3.1")] {
            assert_eq!(setting.send(request).await.status(), StatusCode::BAD_GATEWAY, "{protocol}");
        }
    }
}

/// What a server of one target sends after its answer, or as one answer that could be two, reaches no other request.
#[tokio::test]
async fn an_answer_that_could_be_two_is_one_or_none() {
    const ANSWERS: [(&str, &str); 4] = [
        ("content-length: 2\r\n\r\n{}HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil", "{}"),
        (
            "transfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil",
            "{}",
        ),
        ("content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", ""),
        ("content-length: 2\r\ncontent-length: 6\r\n\r\n{}evil", ""),
    ];
    for (answer, expected) in ANSWERS {
        let setting = Setting::with_token();
        let serve = move |mut stream: Stream| async move {
            while read_head(&mut stream).await {
                stream.write_all(format!("HTTP/1.1 200 OK\r\n{answer}").as_bytes()).await.unwrap();
            }
        };
        setting.moves_to(serving(serve).await);
        for _ in 0..5 {
            let answer = setting.send(get("/version")).await;
            if expected.is_empty() {
                assert_eq!(answer.status(), StatusCode::BAD_GATEWAY, "{answer:?}");
            } else {
                assert_eq!(answer.body(), expected, "{answer:?}");
            }
            assert!(!String::from_utf8_lossy(answer.body()).contains("evil"), "{answer:?}");
        }
    }
}

#[tokio::test]
async fn what_a_client_sends_after_the_answer_has_ended_goes_nowhere() {
    let setting = Setting::with_token();
    let mut has_ended = setting.moves_to_one_that_answers("content-length: 2\r\n\r\n{}", false).await;
    let mut client = setting.stream();
    let target = "/clusters/fleet/paris/api/v1/namespaces/a/configmaps";
    let head = format!(
        "POST {target} HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{{ \r\n"
    );
    client.write_all(head.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"{}") {
        assert_ne!(client.read_buf(&mut answer).await.unwrap(), 0);
    }
    // The client neither ends the body nor goes away.
    timeout(SOON, has_ended.recv()).await.unwrap().unwrap();
    drop(client);
}

#[tokio::test]
async fn an_upload_whose_answer_is_not_read_ends_with_the_right_too() {
    let setting = Setting::with_token();
    let mut has_ended = setting.moves_to_one_that_answers("content-length: 99999999\r\n\r\n", true).await;
    let mut client = http2(&setting).await;
    let (pieces, body) = mpsc::unbounded_channel::<Result<Frame<Bytes>, Infallible>>();
    let body = StreamBody::new(tokio_stream::wrappers::UnboundedReceiverStream::new(body));
    let request = Request::post("http://localhost/clusters/fleet/paris/api/v1/namespaces/a/pods/a/proxy/in");
    let unread = timeout(SOON, client.send_request(request.body(body).unwrap())).await.unwrap().unwrap();
    pieces.send(Ok(Frame::data("begins".into()))).unwrap();
    setting.until_buffers_are_full().await;
    setting.rights.deny("/clusters/fleet/paris");
    timeout(SOON, has_ended.recv()).await.expect("the upload ends").unwrap();
    drop((unread, pieces));
}

#[tokio::test]
async fn trailers_of_an_answer_are_not_passed_on() {
    let setting = Setting::with_token();
    let serve = |mut stream: Stream| async move {
        assert!(read_head(&mut stream).await);
        let answer = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: set-cookie\r\n\r\n2\r\n{}\r\n0\r\nset-cookie: a=b\r\n\r\n";
        stream.write_all(answer).await.unwrap();
    };
    setting.moves_to(serving(serve).await);
    // HTTP/2 would send them.
    let mut client = http2(&setting).await;
    let request =
        Request::get("http://localhost/clusters/fleet/paris/version").body(Full::<Bytes>::default());
    let answer = client.send_request(request.unwrap()).await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    let body = timeout(SOON, answer.into_body().collect()).await.unwrap().unwrap();
    assert_eq!(body.trailers(), None);
    assert_eq!(body.to_bytes(), "{}");
}

#[tokio::test]
async fn the_time_for_an_answer_does_not_run_out_while_the_client_sends() {
    let times = Times { answer: Duration::from_millis(300), ..Times::default() };
    let setting =
        Setting::with(Options { times, ..Options::default() }, |_| issued("1", None, Some("token-1")));
    let serve = |mut stream: Stream| async move {
        assert!(read_head(&mut stream).await);
        stream.read_exact(&mut [0; 20]).await.unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").await.unwrap();
    };
    setting.moves_to(serving(serve).await);
    let mut client = setting.stream();
    let target = "/clusters/fleet/paris/api/v1/namespaces/a/configmaps";
    let head = format!("POST {target} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 20\r\n\r\n");
    client.write_all(head.as_bytes()).await.unwrap();
    // Longer than the proxy waits for an answer: the time is what is tested.
    for _ in 0..20 {
        tokio::time::sleep(times.answer / 6).await;
        client.write_all(b" ").await.unwrap();
    }
    let mut answer = vec![0; 15];
    client.read_exact(&mut answer).await.unwrap();
    assert_eq!(answer, b"HTTP/1.1 200 OK");
}
