//! API servers that treat their connections badly.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use credbroker_proto::v1;
use http::StatusCode;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};
use tokio_rustls::TlsAcceptor;

use crate::{
    broker::issued,
    setting::{Setting, get, post, status},
};

/// Answers the first request on each connection, and closes the connection after it has read the second one.
async fn forgetful(requests: Arc<AtomicUsize>) -> v1::Cluster {
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
            let (acceptor, requests) = (acceptor.clone(), Arc::clone(&requests));
            tokio::spawn(async move {
                let Ok(mut stream) = acceptor.accept(stream).await else { return };
                for turn in 0..2 {
                    let mut head = Vec::new();
                    while !head.ends_with(b"\r\n\r\n") {
                        match stream.read_u8().await {
                            Ok(byte) => head.push(byte),
                            Err(_) => return,
                        }
                    }
                    requests.fetch_add(1, Ordering::SeqCst);
                    if turn == 0 {
                        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").await.unwrap();
                    }
                }
            });
        }
    });
    let authority = key.cert.pem().into_bytes();
    v1::Cluster { server, certificate_authority_data: Some(authority.into()), ..v1::Cluster::default() }
}

#[tokio::test]
async fn only_what_changes_nothing_is_sent_again_after_a_connection_was_lost() {
    let setting = Setting::with_token();
    let requests = Arc::new(AtomicUsize::new(0));
    let cluster = forgetful(Arc::clone(&requests)).await;
    setting.broker.enlist("paris", cluster.clone());
    setting.broker.issue_for("paris", issued("2", None, Some("token-1")), cluster);
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
