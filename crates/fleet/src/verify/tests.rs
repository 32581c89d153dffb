//! Real TLS on loopback. Tests of timeouts pause the time.

mod request;
mod server;

use std::time::SystemTime;

use credbroker_test_support::{Accepts, ApiServer};
use serde_json::json;
use tokio::time::{pause, resume};

use super::*;
use credbroker_credential::{
    ApiVersion, Draft, Generation, Lifetime, LifetimeBound, Now, decode, testing::plain,
};
use server::{Answer, Authority, Event, Proxy, Server, Speaks};

/// Longer than any step takes, also on a slow machine.
const AMPLE: Duration = Duration::from_secs(120);

const TOKEN: &str = "canary-token";

/// The credential of a plugin that printed this `status`.
fn issued(status: &serde_json::Value) -> Arc<Issued> {
    let api_version = ApiVersion::V1;
    let document = json!({"apiVersion": api_version.as_str(), "kind": "ExecCredential", "status": status});
    let decoded = decode(document.to_string().as_bytes(), api_version).unwrap();
    let fetched = Now { wall: SystemTime::UNIX_EPOCH, boot: Duration::ZERO };
    let (expires_at, bound) = (fetched.wall + Duration::from_secs(3600), LifetimeBound::ExpirationTimestamp);
    let lifetime = Lifetime { expires_at, within_skew: false, bound };
    let generation = Generation::new("e".into(), 1);
    Arc::new(Draft { generation, material: &decoded.material, fetched, lifetime, cluster: None }.issue(plain))
}

pub(super) fn token(token: &str) -> Arc<Issued> {
    issued(&json!({"token": token}))
}

/// Verifies with a timeout that no machine exceeds.
async fn verify(issued: &Arc<Issued>, cluster: &Cluster) -> Verdict {
    let verifier = ApiVerifier { timeout: AMPLE, ..ApiVerifier::default() };
    verifier.verify(Arc::clone(issued), Arc::new(cluster.clone())).await
}

/// The verdict on the token if the server sends this response.
async fn answered(text: &str) -> Verdict {
    let mut server = Server::start(Answer::Says(text.to_owned())).await;
    let verdict = verify(&token(TOKEN), &server.cluster).await;
    assert!(matches!(server.next().await, Event::Request(_)));
    assert_eq!(server.next().await, Event::Closed, "it is asked once, and the connection goes: {text}");
    assert_eq!(server.connections(), 1);
    verdict
}

#[tokio::test]
async fn the_http_status_decides_the_verdict() {
    use Verdict::{Accepted, Rejected, Unverifiable};
    let table = [
        (200, Accepted),
        (201, Accepted),
        (202, Accepted),
        (204, Accepted),
        (304, Unverifiable),
        (400, Unverifiable),
        (401, Rejected),
        (403, Accepted),
        (404, Accepted),
        (405, Accepted),
        (407, Unverifiable),
        (409, Unverifiable),
        (415, Unverifiable),
        (422, Unverifiable),
        (429, Unverifiable),
        (500, Unverifiable),
        (503, Unverifiable),
        (599, Unverifiable),
    ];
    for (status, expected) in table {
        let head = format!("HTTP/1.1 {status} X\r\nretry-after: 0\r\ncontent-length: 0\r\n\r\n");
        assert_eq!(answered(&head).await, expected, "{status}");
    }
}

#[tokio::test]
async fn other_responses_give_no_verdict() {
    for text in ["garbage\r\n\r\n", "HTTP/1.1 999999 X\r\n\r\n", "HTTP/1.1 101 X\r\nupgrade: x\r\n\r\n"] {
        assert_eq!(answered(text).await, Verdict::Unverifiable, "{text}");
    }
    let endless_head = format!("HTTP/1.1 200 OK\r\n{}", "x: y\r\n".repeat(100_000));
    assert_eq!(answered(&endless_head).await, Verdict::Unverifiable);
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    for status in [301, 302, 303, 307, 308] {
        let elsewhere = Server::start(Answer::Says(String::new())).await;
        let location = format!("{}/x", elsewhere.cluster.server);
        let head = format!("HTTP/1.1 {status} X\r\nlocation: {location}\r\ncontent-length: 0\r\n\r\n");
        assert_eq!(answered(&head).await, Verdict::Unverifiable);
        assert_eq!(elsewhere.connections(), 0, "{status}");
    }
}

#[tokio::test]
async fn the_body_of_a_response_is_not_read() {
    for head in [
        "HTTP/1.1 401 X\r\ncontent-length: 99999999999\r\n\r\n",
        "HTTP/1.1 401 X\r\ncontent-encoding: gzip\r\n\r\n",
    ] {
        let mut server = Server::start(Answer::Floods(head)).await;
        assert_eq!(verify(&token(TOKEN), &server.cluster).await, Verdict::Rejected);
        assert!(matches!(server.next().await, Event::Request(_)));
        assert_eq!(server.next().await, Event::Closed, "the rest is not taken");
    }
}

#[tokio::test]
async fn the_request_is_a_self_subject_review_below_the_path_of_the_server() {
    let mut server = Server::start(Answer::Says("HTTP/1.1 201 Created\r\n\r\n".to_owned())).await;
    server.cluster.server.push_str("/k8s/clusters/c-1/");
    assert_eq!(verify(&token(TOKEN), &server.cluster).await, Verdict::Accepted);
    let Event::Request(request) = server.next().await else { panic!("a request") };
    let request = request.replace(&server.address.to_string(), "ADDRESS").replace("\r\n", "\n");
    insta::assert_snapshot!(request.replace(env!("CARGO_PKG_VERSION"), "VERSION"), @r#"
POST /k8s/clusters/c-1/apis/authentication.k8s.io/v1/selfsubjectreviews HTTP/1.1
content-type: application/json
accept: application/json
user-agent: credbroker/VERSION
authorization: Bearer canary-token
host: ADDRESS
content-length: 68

{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}
"#);
}

#[tokio::test]
async fn the_verdict_on_a_token_is_that_of_the_server() {
    let server = ApiServer::start(Accepts::Tokens);
    let cluster = Cluster {
        server: server.url(),
        certificate_authority_data: server.ca_pem().into(),
        ..Cluster::default()
    };
    server.accept_token(TOKEN);
    assert_eq!(verify(&token(TOKEN), &cluster).await, Verdict::Accepted);
    server.revoke_token(TOKEN);
    assert_eq!(verify(&token(TOKEN), &cluster).await, Verdict::Rejected);
    server.go_away();
    assert_eq!(verify(&token(TOKEN), &cluster).await, Verdict::Unverifiable);
}

#[tokio::test]
async fn the_verdict_on_a_certificate_is_that_of_the_server() {
    let (server, stranger) = (ApiServer::start(Accepts::Certificates), ApiServer::start(Accepts::Either));
    let cluster = Cluster {
        server: server.url(),
        certificate_authority_data: server.ca_pem().into(),
        ..Cluster::default()
    };
    let certificate = |of: &ApiServer, name: &str| {
        let (chain, key) = of.issue_client_certificate(name, Duration::from_secs(3600));
        (chain, key.trim_end().to_owned())
    };
    let issued = |(chain, key): &(String, String)| {
        issued(&json!({"clientCertificateData": chain, "clientKeyData": key}))
    };
    let ours = certificate(&server, "ours");
    assert_eq!(verify(&issued(&ours), &cluster).await, Verdict::Accepted);
    assert_eq!(verify(&issued(&certificate(&stranger, "theirs")), &cluster).await, Verdict::Rejected);
    assert_eq!(server.seen_certificates(), ["ours", "theirs"]);
    // Go skips headers within a PEM block, and so does the broker. rustls does not.
    let (chain, key) = &ours;
    let odd = (chain.replacen("-----\n", "-----\nlocalKeyID: 01\n\n", 1), key.clone());
    assert_eq!(verify(&issued(&odd), &cluster).await, Verdict::Unverifiable);
}

/// kube-apiserver does not look at the token if it accepts the certificate, and many clients send only the token.
#[tokio::test]
async fn of_a_token_with_a_certificate_the_token_is_verified_alone() {
    let server = ApiServer::start(Accepts::Either);
    let cluster = Cluster {
        server: server.url(),
        certificate_authority_data: server.ca_pem().into(),
        ..Cluster::default()
    };
    let (chain, key) = server.issue_client_certificate("ours", Duration::from_secs(3600));
    let both = issued(&json!({"token": TOKEN, "clientCertificateData": chain, "clientKeyData": key}));
    assert_eq!(verify(&both, &cluster).await, Verdict::Rejected);
    server.accept_token(TOKEN);
    assert_eq!(verify(&both, &cluster).await, Verdict::Accepted);
    assert!(server.seen_certificates().is_empty());
}

#[tokio::test]
async fn only_a_server_that_the_clusters_authorities_sign_gets_the_request() {
    let mut server = Server::start(Answer::Says("HTTP/1.1 401 X\r\n\r\n".to_owned())).await;
    let own = server.cluster.certificate_authority_data.clone();
    let stranger: bytes::Bytes = Authority::new().pem().into();
    let both = [&b"text\n"[..], &stranger, b"-----BEGIN X-----\n-----END X-----\n", &own].concat().into();
    let table = [
        ("unknown", stranger, Verdict::Unverifiable),
        ("the system's", bytes::Bytes::new(), Verdict::Unverifiable),
        ("none in the bundle", " \n".into(), Verdict::Unverifiable),
        ("one of several", both, Verdict::Rejected),
    ];
    for (name, authorities, expected) in table {
        let cluster = Cluster { certificate_authority_data: authorities, ..server.cluster.clone() };
        assert_eq!(verify(&token(TOKEN), &cluster).await, expected, "{name}");
    }
    assert!(matches!(server.next().await, Event::Request(_)));
    assert_eq!(server.next().await, Event::Closed);
    assert!(server.saw_no_more(), "only one of them reached the server with the token");
}

#[tokio::test]
async fn the_certificate_must_have_the_server_name_of_the_cluster() {
    let says = Answer::Says("HTTP/1.1 401 X\r\n\r\n".to_owned());
    let server = Server::called(&Authority::new(), "api.internal", says).await;
    let with = |name: &str| Cluster { tls_server_name: name.into(), ..server.cluster.clone() };
    assert_eq!(verify(&token(TOKEN), &with("")).await, Verdict::Unverifiable);
    assert_eq!(verify(&token(TOKEN), &with("other.internal")).await, Verdict::Unverifiable);
    assert_eq!(verify(&token(TOKEN), &with("not a name")).await, Verdict::Unverifiable);
    assert_eq!(verify(&token(TOKEN), &with("api.internal")).await, Verdict::Rejected);
}

#[tokio::test]
async fn there_is_no_connection_to_a_server_that_tls_does_not_authenticate() {
    let server = Server::start(Answer::Says("HTTP/1.1 401 X\r\n\r\n".to_owned())).await;
    let insecure = Cluster { insecure_skip_tls_verify: true, ..server.cluster.clone() };
    assert_eq!(verify(&token(TOKEN), &insecure).await, Verdict::Unverifiable);
    for url in ["http://A", "A", "//A", "https://user:secret@A", "ftp://A", "", "https://", "https://a b"] {
        let url = url.replace('A', &server.address.to_string());
        let cluster = Cluster { server: url.clone(), ..server.cluster.clone() };
        assert_eq!(verify(&token(TOKEN), &cluster).await, Verdict::Unverifiable, "{url}");
    }
    assert_eq!(server.connections(), 0);
}

#[tokio::test]
async fn the_connection_goes_through_the_proxy_of_the_cluster() {
    for speaks in [Speaks::Http, Speaks::Https, Speaks::Socks5] {
        let authority = Authority::new();
        let says = Answer::Says("HTTP/1.1 401 X\r\n\r\n".to_owned());
        let server = Server::called(&authority, "api.invalid", says).await;
        let mut proxy = Proxy::start(speaks, &authority, server.address).await;
        let cluster = Cluster {
            server: "https://api.invalid:6443".into(),
            proxy_url: proxy.url.clone(),
            ..server.cluster.clone()
        };
        assert_eq!(verify(&token(TOKEN), &cluster).await, Verdict::Rejected, "{speaks:?}");
        let asked = proxy.asked().await;
        match speaks {
            Speaks::Http => {
                assert!(asked.starts_with("CONNECT api.invalid:6443 HTTP/1.1\r\n"), "{asked}");
                assert!(asked.contains("Proxy-Authorization: Basic c29tZW9uZTpzZUBjcmV0\r\n"), "{asked}");
            }
            Speaks::Https => assert!(asked.starts_with("CONNECT api.invalid:6443 HTTP/1.1\r\n"), "{asked}"),
            Speaks::Socks5 => assert_eq!(asked, "api.invalid:6443"),
        }
        assert!(!asked.contains(TOKEN));
    }
}

#[tokio::test]
async fn a_proxy_that_fails_is_not_bypassed() {
    let server = Server::start(Answer::Says("HTTP/1.1 401 X\r\n\r\n".to_owned())).await;
    let gone = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    for proxy in [format!("http://{gone}"), format!("ftp://{gone}"), "no url".to_owned()] {
        let cluster = Cluster { proxy_url: proxy.clone(), ..server.cluster.clone() };
        assert_eq!(verify(&token(TOKEN), &cluster).await, Verdict::Unverifiable, "{proxy}");
    }
    assert_eq!(server.connections(), 0);
}

#[tokio::test]
async fn a_server_that_does_not_respond_has_a_time_limit() {
    let gate = Arc::new(Semaphore::new(0));
    let mut server = Server::start(Answer::Waits(Arc::clone(&gate), "")).await;
    let cluster = server.cluster.clone();
    let mut asking = tokio::task::JoinSet::new();
    asking.spawn(async move { verify(&token(TOKEN), &cluster).await });
    assert!(matches!(server.next().await, Event::Request(_)));
    pause();
    let verdict = timeout(AMPLE, asking.join_next()).await.expect("an end in time");
    assert_eq!(verdict.unwrap().unwrap(), Verdict::Unverifiable);
    gate.add_permits(1);
    assert_eq!(server.next().await, Event::Closed, "the connection goes too");
}

#[tokio::test]
async fn a_verification_beyond_the_limit_waits_for_a_slot_within_its_timeout() {
    let server = Server::start(Answer::Says("HTTP/1.1 401 X\r\n\r\n".to_owned())).await;
    let mut verifier = ApiVerifier::default();
    let cluster = Arc::new(server.cluster.clone());
    let slots = Arc::clone(&verifier.slots);
    let taken = slots.acquire_many(16).await.unwrap();
    pause();
    let late = timeout(TIMEOUT, verifier.verify(token(TOKEN), Arc::clone(&cluster))).await;
    assert_eq!(late.expect("an end in time"), Verdict::Unverifiable);
    assert_eq!(server.connections(), 0);
    resume();
    drop(taken);
    verifier.timeout = AMPLE;
    assert_eq!(verifier.verify(token(TOKEN), cluster).await, Verdict::Rejected);
    assert_eq!(slots.available_permits(), 16, "it is given back");
}

#[tokio::test]
async fn the_logged_cause_of_a_failure_has_the_reason_and_no_secret() {
    let authority = Authority::new();
    let says = Answer::Says("HTTP/1.1 401 X\r\n\r\n".to_owned());
    let server = Server::called(&authority, "api.invalid", says).await;
    let proxy = Proxy::start(Speaks::Http, &authority, server.address).await;
    let cluster =
        Cluster { server: "https://paris".into(), proxy_url: proxy.url.clone(), ..server.cluster.clone() };
    let gone = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let user = "https://user:s3cret@127.0.0.1";
    let clusters = [
        Cluster { certificate_authority_data: Authority::new().pem().into(), ..cluster.clone() },
        Cluster { tls_server_name: "s\u{1b}[31m".into(), ..cluster.clone() },
        Cluster { proxy_url: proxy.url.replace("http", "ftp"), ..cluster.clone() },
        Cluster { proxy_url: format!("http://someone:s3cret@{gone}"), ..cluster.clone() },
        Cluster { proxy_url: "http://someone:s3cret@".into(), ..cluster.clone() },
        Cluster { server: user.into(), ..cluster.clone() },
    ];
    let mut causes = Vec::new();
    for cluster in clusters {
        let asked = ApiVerifier::default().ask(token(TOKEN), Arc::new(cluster)).await;
        causes.push(asked.unwrap_err().to_string());
    }
    insta::assert_snapshot!(causes.join("\n"), @r"
invalid peer certificate: BadSignature
the connection cannot be set up: the proxy's scheme, the TLS server name, the certificate authorities, or the credential's certificate and key cannot be used
the connection cannot be set up: the proxy's scheme, the TLS server name, the certificate authorities, or the credential's certificate and key cannot be used
Connection refused (os error 111)
the cluster's proxy-url is not a URL
the cluster's server is not an https URL without a user
");
    let unreachable = Cluster { server: user.into(), ..cluster };
    assert_eq!(crate::verify::server(&unreachable), None, "what a server's URL may hide is not logged");
}
