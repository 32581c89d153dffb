//! Access rules: a broker in this process, whose only principal is the test itself, and one with peers of other users.

mod audit;
mod clusters;
mod health;
mod lists;
mod others;
mod plugins;

use std::time::Duration;

use credbroker_proto::{
    Reason,
    v1::{self as pb, credential_broker_client::CredentialBrokerClient},
};
use credbroker_test_support::FakePlugin;
use rustix::process::geteuid;
use serde_json::{Value, json};
use tokio::time::timeout;
use tonic::{Code, Status, transport::Channel};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};
use tonic_types::StatusExt as _;

use crate::harness::{InProcess, provider, request};

/// A broker of `a`, `b` and `ab` with these rules.
fn broker(rules: &Value) -> (InProcess, FakePlugin) {
    let plugin = FakePlugin::builder().token_per_run().expires_in(3600).build();
    (InProcess::with(sections(&plugin, rules), &[]), plugin)
}

fn sections(plugin: &FakePlugin, rules: &Value) -> Value {
    let providers: Vec<_> = ["a", "b", "ab"].into_iter().map(|name| provider(name, plugin)).collect();
    json!({"providers": providers, "access": rules})
}

/// Makes other rules active.
async fn change(broker: &InProcess, plugin: &FakePlugin, rules: &Value) {
    broker.reconfigure(sections(plugin, rules)).await;
}

/// A rule for the user of this test.
fn rule(allow: &Value) -> Value {
    json!([{"name": "own", "peers": {"uids": [geteuid().as_raw()]}, "allow": allow}])
}

/// A rule for another user.
fn foreign() -> Value {
    let uid = geteuid().as_raw() + 7;
    json!([{"name": "foreign", "peers": {"uids": [uid]}, "allow": {"providers": ["*"], "verbs": ["get", "admin"]}}])
}

async fn client(broker: &InProcess) -> CredentialBrokerClient<Channel> {
    CredentialBrokerClient::new(broker.channel().await)
}

fn watching(provider: &str) -> pb::WatchCredentialRequest {
    pb::WatchCredentialRequest { r#ref: request(provider, None, &[]).r#ref }
}

fn denied(status: &Status) -> (Code, Option<Reason>) {
    let reason = status.get_details_error_info().and_then(|info| Reason::from_name(&info.reason));
    (status.code(), reason)
}

const DENIED: (Code, Option<Reason>) = (Code::PermissionDenied, Some(Reason::PeerDenied));

#[tokio::test]
async fn a_rule_allows_its_verbs_for_its_providers_and_nothing_else() {
    let (broker, plugin) = broker(&rule(&json!({"providers": ["a*"], "verbs": ["get"]})));
    let mut client = client(&broker).await;
    for name in ["a", "ab", "a"] {
        client.get_credential(request(name, None, &[])).await.unwrap();
    }
    assert_eq!(plugin.runs(), 2, "the third answer is from memory");
    let report = pb::ReportRejectedRequest { r#ref: request("a", None, &[]).r#ref, generation: "x".into() };
    let refusals = [
        client.get_credential(request("b", None, &[])).await.unwrap_err(),
        client.watch_credential(watching("a")).await.unwrap_err(),
        client.report_rejected(report).await.unwrap_err(),
        client.list_clusters(pb::ListClustersRequest::default()).await.unwrap_err(),
        client.watch_clusters(pb::WatchClustersRequest::default()).await.unwrap_err(),
    ];
    for status in refusals {
        assert_eq!(denied(&status), DENIED, "{status:?}");
    }
    assert_eq!(plugin.runs(), 2);
}

#[tokio::test]
async fn what_is_in_memory_for_others_is_forbidden_all_the_same() {
    let (broker, plugin) = broker(&rule(&json!({"providers": ["b"], "verbs": ["get"]})));
    let mut client = client(&broker).await;
    client.get_credential(request("b", None, &[])).await.unwrap();
    change(&broker, &plugin, &rule(&json!({"providers": ["a"], "verbs": ["get"]}))).await;
    let status = client.get_credential(request("b", None, &[])).await.unwrap_err();
    assert_eq!(denied(&status), DENIED, "on the connection that could get it before");
    client.get_credential(request("a", None, &[])).await.unwrap();
    assert_eq!(plugin.runs(), 2);
}

#[tokio::test]
async fn unknown_and_forbidden_look_the_same() {
    let (broker, _plugin) = broker(&rule(&json!({"providers": ["a", "a-*"], "verbs": ["get", "watch"]})));
    let mut client = client(&broker).await;
    let mut shapes = Vec::new();
    for name in ["b", "c", "a-1"] {
        let get = client.get_credential(request(name, None, &[])).await.unwrap_err();
        let watch = client.watch_credential(watching(name)).await.unwrap_err();
        for status in [get, watch] {
            let metadata = status.get_details_error_info().unwrap().metadata;
            assert_eq!(metadata.keys().collect::<Vec<_>>(), ["provider"], "{status:?}");
            shapes.push((denied(&status), status.message().replace(&format!("`{name}`"), "NAME")));
        }
    }
    assert!(shapes.iter().all(|shape| *shape == shapes[0] && shape.0 == DENIED), "{shapes:#?}");
}

#[tokio::test]
async fn without_a_rule_for_it_the_own_user_gets_its_health_and_nothing_else() {
    let (broker, plugin) = broker(&foreign());
    let channel = broker.channel().await;
    let status = CredentialBrokerClient::new(channel.clone())
        .get_credential(request("a", None, &[]))
        .await
        .unwrap_err();
    assert_eq!(denied(&status), DENIED);
    assert!(status.message().contains("no access rule"), "{}", status.message());
    let mut health = HealthClient::new(channel.clone());
    for service in ["", "credbroker.v1.CredentialBroker"] {
        let request = HealthCheckRequest { service: service.into() };
        assert_eq!(health.check(request).await.unwrap().into_inner().status, 1, "{service}");
    }
    assert_eq!(reflection(channel).await.map_err(|status| denied(&status)), Err(DENIED));
    assert_eq!(plugin.runs(), 0);
}

#[tokio::test]
async fn reflection_needs_any_right() {
    let (broker, _plugin) = broker(&rule(&json!({"providers": ["a"], "verbs": ["report"]})));
    reflection(broker.channel().await).await.unwrap();
}

/// Asks for the list of services.
async fn reflection(channel: Channel) -> Result<(), Status> {
    use tonic_reflection::pb::v1::{
        ServerReflectionRequest, server_reflection_client::ServerReflectionClient,
        server_reflection_request::MessageRequest,
    };
    let message_request = Some(MessageRequest::ListServices(String::new()));
    let request = ServerReflectionRequest { host: String::new(), message_request };
    let answers = ServerReflectionClient::new(channel)
        .server_reflection_info(tokio_stream::iter([request]))
        .await?
        .into_inner()
        .message()
        .await?;
    assert!(answers.is_some());
    Ok(())
}

#[tokio::test]
async fn a_watch_that_lost_its_right_ends_and_others_notice_nothing() {
    let (broker, plugin) = broker(&rule(&json!({"providers": ["a", "b"], "verbs": ["watch"]})));
    let mut client = client(&broker).await;
    let mut kept = client.watch_credential(watching("a")).await.unwrap().into_inner();
    let mut lost = client.watch_credential(watching("b")).await.unwrap().into_inner();
    kept.message().await.unwrap();
    lost.message().await.unwrap();
    change(&broker, &plugin, &rule(&json!({"providers": ["a"], "verbs": ["watch"]}))).await;
    assert_eq!(denied(&lost.message().await.unwrap_err()), DENIED);
    change(&broker, &plugin, &rule(&json!({"providers": ["a", "b"], "verbs": ["watch"]}))).await;
    client.watch_credential(watching("b")).await.unwrap().into_inner().message().await.unwrap();
    assert_eq!(plugin.runs(), 2, "nothing ran again");
    change(&broker, &plugin, &rule(&json!({"providers": ["a"], "verbs": ["get"]}))).await;
    assert_eq!(denied(&kept.message().await.unwrap_err()), DENIED, "the verb was lost");
}

#[tokio::test]
async fn without_rules_an_unknown_name_lists_the_known_ones() {
    let (broker, _plugin) = broker(&json!([]));
    let status = client(&broker).await.get_credential(request("c", None, &[])).await.unwrap_err();
    assert_eq!(denied(&status), (Code::NotFound, Some(Reason::UnknownProvider)));
    assert!(status.message().contains("a, ab, b"), "{}", status.message());
}
