//! A broker that can no longer do its work ends, so that its supervisor starts it again.

use std::{path::Path, sync::Arc};

use credbroker_observe::clock::Clock;
use credbroker_proto::v1::{WatchClustersRequest, credential_broker_client::CredentialBrokerClient};
use credbroker_test_support::{FakePlugin, Kubeconfig, private_directory};
use serde_json::{Value, json};
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};

use crate::{
    harness::{InProcess, provider},
    panics::Breaks,
};

fn token() -> FakePlugin {
    FakePlugin::builder().token("t").expires_in(3600).build()
}

fn broker(sections: Value, clock: &Arc<Breaks>) -> InProcess {
    InProcess::with_clock(sections, &[], Arc::clone(clock) as Arc<dyn Clock>)
}

/// A hub that cannot be reached, whose user runs `login`.
fn with_hub(plugin: &FakePlugin, login: &FakePlugin, directory: &Path) -> Value {
    let path = directory.join("hub.kubeconfig");
    Kubeconfig::of_absent_hub(&json!({"exec": login.exec_stanza()})).write(&path);
    let mut cloud = provider("cloud", plugin);
    cloud["profileSourcedEnvVarsPolicy"] = json!("Ignore");
    json!({"providers": [cloud], "clusterProfiles": {"kubeconfig": path}})
}

#[tokio::test]
async fn a_broker_that_no_longer_refreshes_says_so_and_ends() {
    let (plugin, clock) = (token(), Arc::new(Breaks::default()));
    let broker = broker(json!({"providers": [provider("cloud", &plugin)]}), &clock);
    broker.get("cloud").await.unwrap();
    let channel = broker.channel().await;
    let mut watch =
        HealthClient::new(channel).watch(HealthCheckRequest::default()).await.unwrap().into_inner();
    assert_eq!(watch.message().await.unwrap().unwrap().status(), ServingStatus::Serving);
    clock.below(&["app/build.rs", "cache/src/maintenance.rs"]);
    assert_eq!(broker.ended().await, "credential refresher");
    assert_eq!(watch.message().await.unwrap().unwrap().status(), ServingStatus::NotServing);
}

#[tokio::test]
async fn a_broker_that_no_longer_shows_its_clusters_ends() {
    let (plugin, login, clock) = (token(), token(), Arc::new(Breaks::default()));
    let directory = private_directory();
    let broker = broker(with_hub(&plugin, &login, directory.path()), &clock);
    let mut client = CredentialBrokerClient::new(broker.channel().await);
    clock.below(&["app/build.rs", "clusters/mod.rs"]);
    let _watch = client.watch_clusters(WatchClustersRequest::default()).await;
    assert_eq!(broker.ended().await, "readiness reporter");
}

#[tokio::test]
async fn a_broker_that_no_longer_follows_its_files_ends() {
    let (plugin, clock) = (token(), Arc::new(Breaks::default()));
    let broker = broker(json!({"providers": [provider("cloud", &plugin)]}), &clock);
    broker.get("cloud").await.unwrap();
    clock.below(&["app/build.rs", "reload/mod.rs"]);
    broker.reload();
    assert_eq!(broker.ended().await, "configuration follower");
}

/// The rules may be of the new configuration, and the providers of the old one.
#[tokio::test]
async fn a_broker_whose_configuration_is_active_in_part_ends() {
    let (plugin, clock) = (token(), Arc::new(Breaks::default()));
    let broker = broker(json!({"providers": [provider("cloud", &plugin)]}), &clock);
    broker.get("cloud").await.unwrap();
    clock.below(&["reload/adopt.rs"]);
    broker.configure(json!({"providers": [provider("cloud", &plugin)], "limits": {"pluginRuns": 2}}));
    broker.reload();
    assert_eq!(broker.ended().await, "configuration follower");
}

#[tokio::test]
async fn a_broker_that_no_longer_reads_its_hub_ends() {
    let (plugin, login, clock) = (token(), token(), Arc::new(Breaks::default()));
    let directory = private_directory();
    clock.below(&["app/build.rs", "hub/session.rs"]);
    let broker = broker(with_hub(&plugin, &login, directory.path()), &clock);
    assert_eq!(broker.ended().await, "hub reader");
}
