//! One `kube::Client` for the whole life of a `ClusterProfile`, wherever that is.

use std::{pin::pin, time::Duration};

use credbroker_client::{Broker, CredentialRef, CredentialSource, Socket};
use credbroker_kube::{BuildError, ClusterBuilder, EndpointError, for_cluster_profile};
use credbroker_proto::v1::{self, Cluster};
use credbroker_test_support::{Accepts, ApiServer};
use futures_util::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, api::WatchParams};
use tokio::time::timeout;

use crate::broker::{FakeBroker, issued};

const GENEROUS: Duration = Duration::from_secs(30);

/// A server that takes this token.
fn server(token: &str) -> ApiServer {
    let api = ApiServer::start(Accepts::Either);
    api.accept_token(token);
    api
}

fn at(api: &ApiServer) -> Cluster {
    Cluster { server: api.url(), certificate_authority_data: Some(api.ca_pem().into()), ..Cluster::default() }
}

fn token(generation: &str, token: &str) -> v1::Credential {
    issued(generation, None, Some(token))
}

fn source(broker: &FakeBroker) -> CredentialSource {
    broker.to().source(CredentialRef::cluster_profile("fleet", "paris"))
}

async fn client(source: &CredentialSource) -> Client {
    ClusterBuilder::new(source.clone()).drain(Duration::from_secs(2)).ready().await.unwrap()
}

/// Until the source shows what was issued last.
async fn arrived(source: &CredentialSource, generation: &str, server: &str) {
    let mut source = source.clone();
    let arrived = async {
        while source.current().is_none_or(|now| {
            now.generation() != generation || now.cluster().is_none_or(|cluster| cluster.server != server)
        }) {
            source.changed().await;
        }
    };
    timeout(GENEROUS, arrived).await.unwrap_or_else(|_| panic!("no {generation} at {server}"));
}

#[tokio::test]
async fn a_client_in_one_call_goes_where_the_profile_goes_and_sends_each_server_only_its_own_token() {
    let (a, b) = (server("token-a"), server("token-b"));
    let broker = FakeBroker::start();
    broker.issue_for("paris", token("1", "token-a"), at(&a));
    let client = for_cluster_profile(&broker.to(), "fleet", "paris").await.unwrap();
    client.apiserver_version().await.unwrap();
    let source = source(&broker);
    for (generation, api, bearer) in [("2", &b, "token-b"), ("3", &a, "token-a"), ("4", &b, "token-b")] {
        broker.issue_for("paris", token(generation, bearer), at(api));
        arrived(&source, generation, &api.url()).await;
        api.forget_requests();
        let followed = async {
            while api.requests().is_empty() {
                client.apiserver_version().await.unwrap();
            }
        };
        timeout(GENEROUS, followed).await.unwrap_or_else(|_| panic!("generation {generation}"));
        assert!(a.seen_tokens().iter().all(|seen| seen == "token-a"));
        assert!(b.seen_tokens().iter().all(|seen| seen == "token-b"));
    }
}

#[tokio::test]
async fn fifty_moves_under_load_fail_no_request_and_mix_up_no_credential() {
    let (a, b) = (server("token-a"), server("token-b"));
    let x = a.issue_client_certificate("x", Duration::from_secs(3600));
    let y = b.issue_client_certificate("y", Duration::from_secs(3600));
    let broker = FakeBroker::start();
    broker.issue_for("paris", issued("0", Some(&x), Some("token-a")), at(&a));
    let source = source(&broker);
    let client = ClusterBuilder::new(source.clone())
        .config(|config| config.default_retry = false)
        .ready()
        .await
        .unwrap();
    // A few at a time, however slow the machine is.
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let mut load = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let (client, stopped) = (client.clone(), stopped.clone());
        load.spawn(async move {
            while !*stopped.borrow() {
                client.apiserver_version().await?;
            }
            Ok::<_, kube::Error>(())
        });
    }
    for number in 1..=50 {
        let generation = number.to_string();
        let (api, pair, bearer) = if number % 2 == 0 { (&a, &x, "token-a") } else { (&b, &y, "token-b") };
        broker.issue_for("paris", issued(&generation, Some(pair), Some(bearer)), at(api));
        arrived(&source, &generation, &api.url()).await;
        client.apiserver_version().await.unwrap();
    }
    stop.send_replace(true);
    for outcome in load.join_all().await {
        outcome.unwrap();
    }
    for (api, bearer, name) in [(&a, "token-a", "x"), (&b, "token-b", "y")] {
        assert_eq!((api.seen_tokens(), api.seen_certificates()), (vec![bearer.into()], vec![name.into()]));
        assert!(api.requests().iter().all(|request| request.status == 200 && request.token.is_some()));
    }
}

#[tokio::test]
async fn a_credential_that_stays_the_same_moves_too() {
    let (a, b) = (server("shared"), server("shared"));
    let broker = FakeBroker::start();
    broker.issue_for("paris", token("1", "shared"), at(&a));
    let mut source = source(&broker);
    let client = client(&source).await;
    source.changed().await;
    broker.issue_for("paris", token("1", "shared"), at(&b));
    timeout(GENEROUS, source.changed()).await.expect("a change of the same generation");
    client.apiserver_version().await.unwrap();
    assert_eq!((a.requests().len(), b.requests().len()), (0, 1));
}

#[tokio::test]
async fn another_server_name_at_the_same_address_is_another_endpoint() {
    let api = server("token-a");
    let broker = FakeBroker::start();
    broker.issue_for("paris", token("0", "token-a"), at(&api));
    let mut source = source(&broker);
    let client = client(&source).await;
    source.changed().await;
    client.apiserver_version().await.unwrap();
    for (name, accepted) in [("localhost", true), ("elsewhere.example", false), ("127.0.0.1", true)] {
        let cluster = Cluster { tls_server_name: Some(name.into()), ..at(&api) };
        broker.issue_for("paris", token("0", "token-a"), cluster);
        timeout(GENEROUS, source.changed()).await.unwrap();
        assert_eq!(client.apiserver_version().await.is_ok(), accepted, "{name}");
    }
    let connections: Vec<_> = api.requests().iter().map(|request| request.connection).collect();
    assert_eq!(connections, [1, 2, 3], "no connection is reused under another name");
}

#[tokio::test]
async fn a_watch_at_the_old_endpoint_ends_at_the_drain_deadline_without_a_request_to_the_new_one() {
    let (a, b) = (server("token-a"), server("token-b"));
    let broker = FakeBroker::start();
    broker.issue_for("paris", token("1", "token-a"), at(&a));
    let source = source(&broker);
    let pods = Api::<Pod>::namespaced(client(&source).await, "default");
    let mut old = pin!(pods.watch(&WatchParams::default(), "0").await.unwrap());
    broker.issue_for("paris", token("2", "token-b"), at(&b));
    arrived(&source, "2", &b.url()).await;
    assert!(timeout(Duration::from_millis(500), old.next()).await.is_err(), "it drains");
    let end = timeout(GENEROUS, old.next()).await.unwrap();
    assert!(!matches!(end, Some(Ok(_))), "{end:?}");
    a.until_open(None, 0).await;
    let _new = pin!(pods.watch(&WatchParams::default(), "0").await.unwrap());
    assert_eq!((a.seen_tokens(), b.seen_tokens()), (vec!["token-a".into()], vec!["token-b".into()]));
}

#[tokio::test]
async fn a_request_that_the_old_endpoint_never_answers_ends_with_an_error_that_says_send_it_again() {
    let b = server("token-b");
    // Accepts, and says nothing.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let server = format!("https://{}", silent.local_addr().unwrap());
    let broker = FakeBroker::start();
    broker.issue_for("paris", token("1", "token-a"), Cluster { server, ..at(&b) });
    let source = source(&broker);
    let client = client(&source).await;
    let (stuck, accepted) =
        (client.apiserver_version(), tokio::task::spawn_blocking(move || silent.accept()));
    let moving = async {
        let held = accepted.await.unwrap().unwrap();
        broker.issue_for("paris", token("2", "token-b"), at(&b));
        held
    };
    let (error, _held) = timeout(GENEROUS, async { tokio::join!(stuck, moving) }).await.unwrap();
    let Err(kube::Error::Service(error)) = error else { panic!("{error:?}") };
    assert!(matches!(error.downcast_ref(), Some(EndpointError::Moved)), "{error:?}");
    client.apiserver_version().await.unwrap();
}

#[tokio::test]
async fn a_request_that_the_old_endpoint_rejects_is_sent_to_the_new_one() {
    let (a, b) = (server("token-a"), server("token-b"));
    let broker = FakeBroker::start();
    broker.issue_for("paris", token("1", "token-a"), at(&a));
    let client = client(&source(&broker)).await;
    client.apiserver_version().await.unwrap();
    a.revoke_token("token-a");
    broker.issue_for_on_report("1", token("2", "token-b"), at(&b));
    client.apiserver_version().await.unwrap();
    assert_eq!(broker.reports(), ["1"]);
    assert_eq!((a.seen_tokens(), b.seen_tokens()), (vec!["token-a".into()], vec!["token-b".into()]));
    assert_eq!((a.requests().len(), b.requests().len()), (2, 1));
}

#[tokio::test]
async fn an_endpoint_that_cannot_be_used_gets_nothing_and_neither_does_the_one_before() {
    let api = server("token-a");
    let broker = FakeBroker::start();
    broker.issue("bare", token("1", "token-a"));
    let bare = ClusterBuilder::new(broker.source("bare").await).ready().await;
    assert!(matches!(bare, Err(BuildError::NoEndpoint)));

    broker.issue_for("paris", token("1", "token-a"), at(&api));
    let mut source = source(&broker);
    let client = client(&source).await;
    source.changed().await;
    let plain = Cluster { server: api.url().replace("https", "http"), ..at(&api) };
    let no_authority = Cluster { certificate_authority_data: Some("no PEM".into()), ..at(&api) };
    for cluster in [plain, no_authority] {
        broker.issue_for("paris", token("2", "token-a"), cluster);
        timeout(GENEROUS, source.changed()).await.unwrap();
        let Err(kube::Error::Service(error)) = client.apiserver_version().await else { panic!() };
        assert!(matches!(error.downcast_ref(), Some(EndpointError::Unusable(_))), "{error:?}");
        assert!(ClusterBuilder::new(source.clone()).ready().await.is_err());
    }
    assert!(api.requests().is_empty());
    broker.issue_for("paris", token("3", "token-a"), at(&api));
    timeout(GENEROUS, source.changed()).await.unwrap();
    client.apiserver_version().await.unwrap();
}

#[tokio::test]
async fn settings_other_than_the_endpoint_are_those_of_the_builder() {
    let api = server("token-a");
    let broker = FakeBroker::start();
    broker.issue_for("paris", token("1", "token-a"), at(&api));
    let own = ClusterBuilder::new(source(&broker))
        .config(|config| config.auth_info.token = Some("own".to_owned().into()));
    assert!(matches!(own.ready().await, Err(BuildError::Credentials { .. })));
    let set = ClusterBuilder::new(source(&broker)).config(|config| {
        config.default_namespace = "apps".into();
        config.cluster_url = "https://elsewhere.example".parse().unwrap();
        config.accept_invalid_certs = true;
    });
    let client = set.build().unwrap();
    assert_eq!(client.default_namespace(), "apps");
    client.apiserver_version().await.unwrap();
    assert_eq!(api.requests().len(), 1);
}

#[tokio::test]
async fn without_a_credential_the_builder_fails_and_a_client_that_was_built_without_waiting_works_later() {
    let broker = FakeBroker::start();
    let absent = Broker::at(Socket::at("/nonexistent/socket"));
    let source = absent.source(CredentialRef::cluster_profile("fleet", "paris"));
    assert!(matches!(ClusterBuilder::new(source).ready().await, Err(BuildError::NoCredential(_))));
    let api = server("token-a");
    let client = ClusterBuilder::new(self::source(&broker)).build().unwrap();
    let issue = async {
        tokio::task::yield_now().await;
        broker.issue_for("paris", token("1", "token-a"), at(&api));
    };
    let (version, ()) = tokio::join!(client.apiserver_version(), issue);
    version.unwrap();
}
