//! One `kube::Client` for its whole life.

use std::{error::Error as _, pin::pin, time::Duration};

use credbroker_client::CredentialSource;
use credbroker_kube::{BuildError, Builder, for_provider};
use credbroker_test_support::{Accepts, ApiServer};
use futures_util::StreamExt;
use http::{
    Request, StatusCode,
    header::{CONNECTION, UPGRADE},
};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, Config, api::WatchParams, client::Body, config::AuthInfo};
use rustls::pki_types::{CertificateDer, pem::PemObject};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::broker::{FakeBroker, issued};

struct Setting {
    api: ApiServer,
    broker: FakeBroker,
    source: CredentialSource,
}

impl Setting {
    async fn new(token: &str) -> Self {
        let api = ApiServer::start(Accepts::Either);
        api.accept_token(token);
        let broker = FakeBroker::start();
        broker.issue("p", issued("0", None, Some(token)));
        let source = broker.source("p").await;
        Self { api, broker, source }
    }

    fn config(&self) -> Config {
        let mut config = Config::new(self.api.url().parse().unwrap());
        let authority = CertificateDer::from_pem_slice(self.api.ca_pem().as_bytes()).unwrap();
        config.root_cert = Some(vec![authority.to_vec()]);
        config
    }

    fn client(&self) -> Client {
        Builder::new(self.config(), self.source.clone()).drain(Duration::from_secs(2)).build().unwrap()
    }

    async fn rotate(&mut self, generation: &str, pair: Option<&(String, String)>, token: Option<&str>) {
        self.broker.issue("p", issued(generation, pair, token));
        self.source.changed().await;
    }

    /// By certificate and token.
    fn seen(&self) -> (Option<String>, Option<String>) {
        let last = self.api.requests().pop().unwrap();
        (last.certificate, last.token)
    }
}

fn named(certificate: Option<&str>, token: Option<&str>) -> (Option<String>, Option<String>) {
    (certificate.map(str::to_owned), token.map(str::to_owned))
}

#[tokio::test]
async fn a_client_follows_tokens_certificates_and_both() {
    let mut setting = Setting::new("a").await;
    setting.api.accept_token("b");
    let x = setting.api.issue_client_certificate("x", Duration::from_secs(3600));
    let y = setting.api.issue_client_certificate("y", Duration::from_secs(3600));
    let client = setting.client();
    client.apiserver_version().await.unwrap();
    assert_eq!(setting.seen(), named(None, Some("a")));
    for (generation, pair, certificate, token) in [
        ("1", None, None, Some("b")),
        ("2", Some(&x), Some("x"), None),
        ("3", Some(&y), Some("y"), None),
        ("4", Some(&x), Some("x"), Some("a")),
        ("5", None, None, Some("b")),
    ] {
        setting.rotate(generation, pair, token).await;
        client.apiserver_version().await.unwrap();
        assert_eq!(setting.seen(), named(certificate, token), "generation {generation}");
    }
}

#[tokio::test]
async fn a_client_of_a_provider_is_one_call_that_says_why_there_is_none() {
    let setting = Setting::new("a").await;
    let broker = setting.broker.to().timeout(Duration::from_millis(300));
    let client = for_provider(&broker, "p", setting.config()).await.unwrap();
    client.apiserver_version().await.unwrap();
    assert_eq!(setting.seen(), named(None, Some("a")));
    let Err(error @ BuildError::NoCredential(_)) = for_provider(&broker, "q", setting.config()).await else {
        panic!("nothing is issued for it")
    };
    assert!(
        error.source().is_some_and(|why| why.to_string().contains("provider q: deadline exceeded")),
        "{error:?}"
    );
}

#[tokio::test]
async fn a_revoked_token_is_replaced_without_a_failed_request() {
    let setting = Setting::new("a").await;
    let client = setting.client();
    client.apiserver_version().await.unwrap();
    setting.api.revoke_token("a");
    setting.api.accept_token("b");
    setting.broker.issue_on_report("0", issued("1", None, Some("b")));
    client.apiserver_version().await.unwrap();
    assert_eq!((setting.seen(), setting.broker.reports()), (named(None, Some("b")), vec!["0".to_owned()]));
}

#[tokio::test]
async fn a_watch_of_an_old_certificate_ends_at_the_deadline_and_one_of_a_token_does_not() {
    let mut setting = Setting::new("a").await;
    let (x, client) =
        (setting.api.issue_client_certificate("x", Duration::from_secs(3600)), setting.client());
    let pods = Api::<Pod>::namespaced(client.clone(), "default");
    let mut old = pin!(pods.watch(&WatchParams::default(), "0").await.unwrap());
    setting.rotate("1", None, Some("a")).await;
    assert!(
        tokio::time::timeout(Duration::from_secs(1), old.next()).await.is_err(),
        "a token closes nothing"
    );
    setting.rotate("2", Some(&x), None).await;
    let end = tokio::time::timeout(Duration::from_secs(30), old.next()).await.unwrap();
    assert!(!matches!(end, Some(Ok(_))), "{end:?}");
    let _new = pin!(pods.watch(&WatchParams::default(), "0").await.unwrap());
    assert_eq!(setting.seen(), named(Some("x"), None));
    setting.api.until_open(None, 0).await;
}

#[tokio::test]
async fn an_upgraded_connection_works_and_ends_at_the_deadline_of_its_certificate() {
    let mut setting = Setting::new("a").await;
    let (x, client) =
        (setting.api.issue_client_certificate("x", Duration::from_secs(3600)), setting.client());
    let path = "/api/v1/namespaces/default/pods/web-0/exec";
    let request = Request::get(path).header(CONNECTION, "upgrade").header(UPGRADE, "echo");
    let response = client.send(request.body(Body::empty()).unwrap()).await.unwrap();
    assert_eq!(response.status(), StatusCode::SWITCHING_PROTOCOLS);
    let mut stream = TokioIo::new(hyper::upgrade::on(response).await.unwrap());
    let mut answer = [0; 4];
    stream.write_all(b"ping").await.unwrap();
    stream.read_exact(&mut answer).await.unwrap();

    setting.rotate("1", Some(&x), None).await;
    stream.write_all(b"pong").await.unwrap();
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"pong", "it drains");
    let end = tokio::time::timeout(Duration::from_secs(30), stream.read(&mut answer)).await.unwrap();
    assert!(!matches!(end, Ok(1..)), "{end:?}");
}

type Set = fn(&mut AuthInfo);

#[tokio::test]
async fn a_config_with_other_credentials_is_refused() {
    let setting = Setting::new("a").await;
    let own: [(&str, Set); 4] = [
        ("token", |auth| auth.token = Some("own".to_owned().into())),
        ("password", |auth| auth.username = Some("own".to_owned())),
        ("certificate", |auth| auth.client_certificate = Some("own".to_owned())),
        ("exec", |auth| auth.exec = serde_json::from_str("{}").ok()),
    ];
    for (what, set) in own {
        let mut config = setting.config();
        set(&mut config.auth_info);
        let error = Builder::new(config, setting.source.clone()).build().err().unwrap();
        assert!(matches!(error, BuildError::Credentials { .. }), "{error}");
        assert!(error.to_string().contains(what), "{error}");
    }
    let mut impersonating = setting.config();
    impersonating.auth_info.impersonate = Some("someone".to_owned());
    assert!(Builder::new(impersonating, setting.source.clone()).build().is_ok());
}

#[tokio::test]
async fn nothing_is_sent_in_the_clear() {
    let setting = Setting::new("a").await;
    let mut config = setting.config();
    config.cluster_url = "http://127.0.0.1:9".parse().unwrap();
    let client = Builder::new(config, setting.source.clone()).build().unwrap();
    let error = client.apiserver_version().await.unwrap_err();
    assert!(format!("{error:?}").contains("Plaintext"), "{error:?}");
}

#[tokio::test]
async fn the_servers_name_is_the_configs() {
    let setting = Setting::new("a").await;
    for (name, accepted) in [("localhost", true), ("elsewhere.example", false)] {
        let mut config = setting.config();
        config.tls_server_name = Some(name.to_owned());
        config.default_retry = false;
        let client = Builder::new(config, setting.source.clone()).build().unwrap();
        assert_eq!(client.apiserver_version().await.is_ok(), accepted, "{name}");
    }
}
