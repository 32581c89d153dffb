use super::*;
use std::io::ErrorKind;

mod faults;
mod hub;
mod lists;
mod watches;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use rustls::RootCertStore;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, HandshakeKind};
use serde_json::Value;
use tokio_rustls::TlsConnector;

#[tokio::test]
async fn an_accepted_token_is_served_until_it_is_revoked() {
    let server = ApiServer::start(Accepts::Tokens);
    server.accept_token("good");
    let mut client = connect(&server, None).await;

    let (status, version) = get(&mut client, "/version", Some("good")).await;
    assert_eq!((status, version["gitVersion"].as_str()), (200, Some("v1.32.0")));

    server.revoke_token("good");
    let (status, failure) = get(&mut client, "/version", Some("good")).await;
    assert_eq!((status, failure["kind"].as_str()), (401, Some("Status")));

    assert_eq!(server.seen_tokens(), ["good"]);
    assert_eq!(server.connections(), 1);
    assert_eq!(server.requests().iter().map(|request| request.status).collect::<Vec<_>>(), [200, 401]);
}

#[tokio::test]
async fn a_request_needs_an_identity_of_the_right_kind() {
    let tokens = ApiServer::start(Accepts::Tokens);
    let pair = tokens.issue_client_certificate("dev", Duration::from_secs(60));
    assert_eq!(get(&mut connect(&tokens, None).await, "/api", None).await.0, 401);
    assert_eq!(get(&mut connect(&tokens, Some(&pair)).await, "/api", None).await.0, 401);

    let certificates = ApiServer::start(Accepts::Certificates);
    certificates.accept_token("good");
    assert_eq!(get(&mut connect(&certificates, None).await, "/api", Some("good")).await.0, 401);
}

#[tokio::test]
async fn a_client_certificate_is_served_under_its_common_name() {
    let server = ApiServer::start(Accepts::Either);
    let pair = server.issue_client_certificate("dev", Duration::from_secs(60));
    let (status, pods) =
        get(&mut connect(&server, Some(&pair)).await, "/api/v1/namespaces/default/pods", None).await;
    assert_eq!((status, pods["kind"].as_str()), (200, Some("PodList")));
    assert_eq!(server.seen_certificates(), ["dev"]);
}

/// What makes it a test of clients: one that keeps a session beyond its certificate is seen under the old name.
#[tokio::test]
async fn a_session_is_resumed_with_the_identity_that_began_it() {
    let server = ApiServer::start(Accepts::Certificates);
    let pair = server.issue_client_certificate("first", Duration::from_secs(3600));
    let config = config(&server, Some(&pair));
    let mut kinds = Vec::new();
    for _ in 0..2 {
        let (mut client, kind) = dial(&server, Arc::clone(&config)).await;
        assert_eq!(get(&mut client, "/version", None).await.0, 200);
        kinds.push(kind);
    }
    assert_eq!(kinds, [Some(HandshakeKind::Full), Some(HandshakeKind::Resumed)]);
    let seen: Vec<_> = server.requests().into_iter().map(|request| request.certificate).collect();
    assert_eq!(seen, [Some("first".to_owned()), Some("first".to_owned())]);
}

#[tokio::test]
async fn a_foreign_or_expired_certificate_is_seen_and_refused() {
    let server = ApiServer::start(Accepts::Certificates);
    let foreign =
        ApiServer::start(Accepts::Certificates).issue_client_certificate("foreign", Duration::from_secs(60));
    let expired = server.issue_client_certificate("expired", Duration::ZERO);
    while rustls::pki_types::UnixTime::now().as_secs() <= not_after(&expired.0) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(get(&mut connect(&server, Some(&foreign)).await, "/api", None).await.0, 401);
    assert_eq!(get(&mut connect(&server, Some(&expired)).await, "/api", None).await.0, 401);
    assert_eq!(server.seen_certificates(), ["expired", "foreign"]);
}

/// What it cannot do, it does not seem to do.
#[tokio::test]
async fn writes_and_selectors_are_refused() {
    let server = ApiServer::start(Accepts::Tokens);
    server.accept_token("good");
    let mut client = connect(&server, None).await;
    let maps = "/api/v1/namespaces/default/configmaps";
    let one = r#"{"kind":"ConfigMap","metadata":{"name":"one"}}"#;
    for (method, path) in
        [("POST", maps.to_owned()), ("PATCH", format!("{maps}/one")), ("DELETE", format!("{maps}/one"))]
    {
        assert_eq!(send(&mut client, method, &path, Some("good"), one).await.0, 405, "{method}");
    }
    assert!(server.requests().iter().any(|request| request.body == one));
    for query in [
        "labelSelector=env%3Dprod",
        "fieldSelector=metadata.name%3Done",
        "resourceVersion=1&resourceVersionMatch=Exact",
    ] {
        assert_eq!(get(&mut client, &format!("{maps}?{query}"), Some("good")).await.0, 400, "{query}");
    }
}

#[test]
fn a_dropped_server_is_gone() {
    let server = ApiServer::start(Accepts::Tokens);
    let address = server.address();
    drop(server);
    let refused = std::net::TcpStream::connect(address).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
}

type Client = SendRequest<Full<Bytes>>;

async fn connect(server: &ApiServer, pair: Option<&(String, String)>) -> Client {
    dial(server, config(server, pair)).await.0
}

fn config(server: &ApiServer, pair: Option<&(String, String)>) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(server.ca_pem().as_bytes()).unwrap()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    Arc::new(match pair {
        None => config.with_no_client_auth(),
        Some((certificate, key)) => config
            .with_client_auth_cert(
                vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()],
                PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap(),
            )
            .unwrap(),
    })
}

/// A connection, and how its handshake went.
async fn dial(server: &ApiServer, config: Arc<ClientConfig>) -> (Client, Option<HandshakeKind>) {
    let stream = tokio::net::TcpStream::connect(server.address()).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let stream = TlsConnector::from(config).connect(name, stream).await.unwrap();
    let kind = stream.get_ref().1.handshake_kind();
    let (client, connection) = handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    (client, kind)
}

async fn get(client: &mut Client, path: &str, token: Option<&str>) -> (u16, Value) {
    send(client, "GET", path, token, "").await
}

async fn send(
    client: &mut Client,
    method: &str,
    path: &str,
    token: Option<&str>,
    body: &str,
) -> (u16, Value) {
    let mut request = Request::builder().method(method).uri(path).header("host", "localhost");
    if let Some(token) = token {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    client.ready().await.unwrap();
    let response = client.send_request(request.body(Full::from(body.to_owned())).unwrap()).await.unwrap();
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, serde_json::from_slice(&body).unwrap())
}

fn not_after(pem: &str) -> u64 {
    let der = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
    let (_, certificate) = x509_parser::parse_x509_certificate(&der).unwrap();
    certificate.validity().not_after.timestamp().try_into().unwrap()
}
