//! A hub that says too much takes neither memory nor what is known.

use std::time::Duration;

use credbroker_client::{Client, Socket};
use credbroker_test_support::{
    Accepts, ApiServer, Broker, Collection, FakePlugin, Flood, Kubeconfig, private_directory,
};
use futures_util::StreamExt as _;
use serde_json::json;
use tempfile::TempDir;

use super::{AGES, resident};
use crate::harness::{problem_of as problem, provider};

const PROGRAM: &str = env!("CARGO_BIN_EXE_credbroker");
/// What an answer of the hub may cost, in KiB: 16 MiB as bytes, as text, and as values, and no more of any of them.
const ALLOWED: u64 = 160 * 1024;

struct Flooded {
    server: ApiServer,
    broker: Broker,
    _plugin: FakePlugin,
    _directory: TempDir,
}

impl Flooded {
    /// A broker that knows one cluster.
    async fn start() -> Self {
        let (server, directory) = (ApiServer::start(Accepts::Either), private_directory());
        server.accept_token("hub");
        let kubeconfig = directory.path().join("hub.kubeconfig");
        let user = Kubeconfig::new().cluster_of(&server, "hub").user("hub", &json!({"token": "hub"}));
        user.context("hub", "hub", "hub").write(&kubeconfig);
        let plugin = FakePlugin::builder().token("t").expires_in(3600).build();
        let access = json!([{"name": "cloud", "cluster": {"server": "https://paris"}}]);
        let status = json!({"accessProviders": access});
        let profile = json!({"spec": {"clusterManager": {"name": "m"}}, "status": status});
        server.apply_cluster_profile("fleet", "paris", profile);
        let config = json!({
            "apiVersion": "credbroker.io/v1alpha1", "kind": "BrokerConfig",
            "providers": [provider("cloud", &plugin)], "clusterProfiles": {"kubeconfig": kubeconfig},
        });
        let broker = Broker::builder(PROGRAM).config(&config.to_string()).start();
        let flooded = Self { server, broker, _plugin: plugin, _directory: directory };
        flooded.until(|hub, clusters| hub.is_empty() && clusters == 1).await;
        // Without a watch that fails the broker would not list again.
        flooded.server.until_watched(Collection::ClusterProfiles, 1).await;
        flooded
    }

    /// Waits until the hub's problem and the number of clusters are so; returns the problem and the most memory seen.
    async fn until(&self, is_so: impl Fn(&str, usize) -> bool) -> (String, u64) {
        let client = Client::connect(&Socket::at(self.broker.socket())).await.unwrap();
        let mut most = 0;
        let reached = async {
            loop {
                let mut messages = client.watch_clusters(Some("fleet"), false).await.unwrap();
                let message = messages.next().await.unwrap().unwrap();
                let hub = message.hub.unwrap();
                most = most.max(resident(self.broker.pid()));
                if hub.synced && is_so(problem(&hub), message.changed.len()) {
                    return problem(&hub).to_owned();
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let problem = tokio::time::timeout(AGES, reached).await.expect("the hub becomes so");
        (problem, most)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_without_an_end_is_an_error_of_the_hub() {
    for (flood, limit) in [
        (Flood::Blanks, "limit of 16 MiB"),
        (Flood::Items, "limit of 16 MiB"),
        (Flood::Bomb, "limit of 16 MiB"),
        (Flood::Line, "limit of 2 MiB"),
        (Flood::Pages, "more than 20000 ClusterProfiles"),
    ] {
        let flooded = Flooded::start().await;
        let before = resident(flooded.broker.pid());
        flooded.server.flood(flood);
        flooded.server.cut_connections();
        let (problem, most) =
            flooded.until(|problem, clusters| problem.contains("limit") && clusters == 1).await;
        assert!(problem.contains(limit), "{flood:?}: {problem}");
        let more = most.saturating_sub(before);
        println!("{flood:?}: {before} KiB before, {more} more: {problem}");
        assert!(more < ALLOWED, "{flood:?}: {more} KiB more");
        let (status, log) = flooded.broker.stop();
        assert_eq!(status.code(), Some(0), "{log}");
        assert!(!log.contains("grace period"), "{flood:?}: {log}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hub_that_is_well_again_is_read_again() {
    let flooded = Flooded::start().await;
    flooded.server.flood(Flood::Blanks);
    flooded.server.cut_connections();
    flooded.until(|problem, _| problem.contains("limit")).await;
    flooded.server.mend();
    flooded.until(|problem, clusters| problem.is_empty() && clusters == 1).await;
}
