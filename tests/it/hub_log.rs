//! What the log and callers see of the hub, and of the identity of the broker there.

use std::{path::PathBuf, time::Duration};

use credbroker_client::{Client, HubState, Socket};
use credbroker_test_support::{
    Accepts, ApiServer, Broker, Collection, FakePlugin, Kubeconfig, private_directory,
};
use futures_util::StreamExt as _;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::problem_of as problem;

const PROGRAM: &str = env!("CARGO_BIN_EXE_credbroker");

/// A hub, and a kubeconfig for it.
struct Hub {
    server: ApiServer,
    directory: TempDir,
}

impl Hub {
    fn start() -> Self {
        Self { server: ApiServer::start(Accepts::Either), directory: private_directory() }
    }

    fn kubeconfig(&self) -> PathBuf {
        self.directory.path().join("hub.kubeconfig")
    }

    fn with_user(&self, user: &Value) {
        let kubeconfig = Kubeconfig::new().cluster_of(&self.server, "hub").user("hub", user);
        kubeconfig.context("hub", "hub", "hub").write(self.kubeconfig());
    }

    fn broker(&self, level: &str) -> Broker {
        let plugin = FakePlugin::builder().build();
        let config = json!({
            "apiVersion": "credbroker.io/v1alpha1",
            "kind": "BrokerConfig",
            "providers": [{"name": "cloud", "execConfig": plugin.exec_stanza()}],
            "clusterProfiles": {"kubeconfig": self.kubeconfig()},
        });
        Broker::builder(PROGRAM).config(&config.to_string()).env("RUST_LOG", level).start()
    }
}

/// The state of the hub that callers get, as soon as it `is_so`.
async fn hub_state(broker: &Broker, is_so: impl Fn(&HubState) -> bool) -> HubState {
    let client = Client::connect(&Socket::at(broker.socket())).await.unwrap();
    let mut messages = client.watch_clusters(None, false).await.unwrap();
    let reached = async {
        loop {
            let hub = messages.next().await.unwrap().unwrap().hub.unwrap();
            if is_so(&hub) {
                return hub;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(60), reached).await.expect("the hub becomes so")
}

fn assert_no_canary(log: &str) {
    assert!(log.contains("TRACE"), "everything was logged");
    let shown: Vec<_> = log.lines().filter(|line| line.contains("c4n4ry")).collect();
    assert!(shown.is_empty(), "{}", shown.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn neither_a_log_nor_a_caller_sees_who_the_broker_is_to_its_hub() {
    let login = FakePlugin::builder().token("c4n4ry-issued").stderr("c4n4ry-stderr").build();
    for user in [json!({"token": "c4n4ry-static"}), json!({"exec": login.exec_stanza()})] {
        let hub = Hub::start();
        hub.with_user(&user);
        let broker = hub.broker("trace");
        let refused = hub_state(&broker, |hub| !problem(hub).is_empty()).await;
        assert!(!problem(&refused).contains("c4n4ry"), "{}", problem(&refused));
        hub.server.accept_token("c4n4ry-static");
        hub.server.accept_token("c4n4ry-issued");
        hub_state(&broker, |hub| hub.synced && problem(hub).is_empty()).await;
        hub.server.until_watched(Collection::ClusterProfiles, 1).await;
        assert_no_canary(&broker.stop().1);
    }
}

/// A parser quotes the text that it does not understand, and the text around it.
#[tokio::test(flavor = "multi_thread")]
async fn a_kubeconfig_of_the_hub_that_breaks_is_not_quoted() {
    let hub = Hub::start();
    hub.server.accept_token("c4n4ry-token");
    hub.with_user(&json!({"token": "c4n4ry-token"}));
    let whole = std::fs::read_to_string(hub.kubeconfig()).unwrap();
    for broken in [
        whole.replace("\"c4n4ry-token\"", "\"c4n4ry-token\": \"c4n4ry-more\""),
        whole.replace("\"c4n4ry-token\"", "[\"c4n4ry-token\"]"),
        whole.replace("https://", "c4n4ry https://"),
    ] {
        // One broker each: the pauses after failures grow.
        let broker = hub.broker("trace");
        hub_state(&broker, |hub| hub.synced).await;
        std::fs::write(hub.kubeconfig(), &broken).unwrap();
        hub.server.cut_the_watch(Collection::ClusterProfiles).await;
        let state = hub_state(&broker, |hub| problem(hub).contains("kubeconfig")).await;
        assert!(!problem(&state).contains("c4n4ry"), "{}", problem(&state));
        std::fs::write(hub.kubeconfig(), &whole).unwrap();
        hub_state(&broker, |hub| problem(hub).is_empty()).await;
        assert_no_canary(&broker.stop().1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_password_of_the_hubs_proxy_is_shown_nowhere() {
    for proxy in
        ["http://me:c4n4ry@127.0.0.1:1", "socks5://me:c4n4ry@127.0.0.1:1", "ftp://me:c4n4ry@127.0.0.1:1"]
    {
        let hub = Hub::start();
        let cluster = json!({"server": hub.server.url(), "proxy-url": proxy});
        let kubeconfig = Kubeconfig::new().cluster("hub", &cluster).user("hub", &json!({"token": "c4n4ry"}));
        kubeconfig.context("hub", "hub", "hub").write(hub.kubeconfig());
        let broker = hub.broker("trace");
        let state = hub_state(&broker, |hub| !problem(hub).is_empty()).await;
        assert!(!problem(&state).contains("c4n4ry"), "{}", problem(&state));
        assert_no_canary(&broker.stop().1);
    }
}

/// kube alone would log each failed request as an error without context.
#[tokio::test(flavor = "multi_thread")]
async fn a_hub_that_is_not_available_is_logged_only_by_the_broker() {
    let hub = Hub::start();
    hub.with_user(&json!({"token": "t"}));
    hub.server.go_away();
    let broker = hub.broker("");
    hub_state(&broker, |hub| !problem(hub).is_empty()).await;
    let (_, log) = broker.stop();
    let lines: Vec<_> = log.lines().filter(|line| line.contains("the hub cannot be read")).collect();
    assert!(!lines.is_empty() && !log.contains("ERROR"), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_problem_of_a_profile_is_logged_once_and_not_with_each_change() {
    let hub = Hub::start();
    hub.server.accept_token("t");
    hub.with_user(&json!({"token": "t"}));
    let change = |value: &str| {
        let access = json!([{"name": "cloud", "cluster": {"server": "ftp://paris"}}]);
        let properties = json!([{"name": "seen", "value": value}]);
        let status = json!({"accessProviders": access, "properties": properties});
        hub.server.apply_cluster_profile(
            "fleet",
            "paris",
            json!({"spec": {"clusterManager": {"name": "m"}}, "status": status}),
        );
    };
    change("first");
    let broker = hub.broker("");
    let client = Client::connect(&Socket::at(broker.socket())).await.unwrap();
    let mut messages = client.watch_clusters(None, false).await.unwrap();
    for value in ["first", "second", "third"] {
        change(value);
        let seen = async {
            while !messages
                .next()
                .await
                .unwrap()
                .unwrap()
                .changed
                .iter()
                .any(|cluster| cluster.properties.iter().any(|property| property.value == value))
            {
            }
        };
        tokio::time::timeout(Duration::from_secs(60), seen).await.expect("the change is seen");
    }
    let (_, log) = broker.stop();
    assert_eq!(log.matches("cluster.server must be a URL").count(), 1, "{log}");
}
