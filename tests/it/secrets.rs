//! What must never be seen.

use std::{path::PathBuf, process::Command, time::Duration};

use credbroker_client::{Client, Socket};
use credbroker_proto::v1::HubState;
use credbroker_test_support::{
    Accepts, ApiServer, Broker, Collection, FakePlugin, Kubeconfig, private_directory,
};
use futures_util::StreamExt as _;
use serde_json::{Value, json};
use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_credbroker");

/// With everything logged that there is, by us and by every library below.
#[test]
fn no_log_at_any_level_shows_a_secret() {
    let server = ApiServer::start(Accepts::Either);
    let (certificate, key) = server.issue_client_certificate("someone", std::time::Duration::from_secs(3600));
    let plugin =
        FakePlugin::builder().token("c4n4ry-token").pair(&certificate, &key).stderr("c4n4ry-stderr").build();
    let failing = FakePlugin::script("echo c4n4ry-stdout; exit 1");
    let provider = |name, plugin: &FakePlugin| {
        json!({
            "name": name,
            "execConfig": {
                "apiVersion": "client.authentication.k8s.io/v1",
                "command": plugin.path(),
                "args": ["c4n4ry-arg"],
                "env": [{"name": "SECRET", "value": "c4n4ry-env"}],
                "interactiveMode": "Never",
            },
            "callerEnv": ["AWS_*"],
        })
    };
    let broker = Broker::builder(PROGRAM)
        .providers(&json!([provider("cloud", &plugin), provider("failing", &failing)]))
        .env("CREDBROKER_LOG", "trace")
        .start();
    for name in ["cloud", "cloud", "failing", "unknown"] {
        Command::new(PROGRAM)
            .args(["shim", "--provider", name, "--socket"])
            .arg(broker.socket())
            .env_clear()
            .env("AWS_PROFILE", "c4n4ry-caller")
            .output()
            .unwrap();
    }
    let (_, log) = broker.stop();
    assert!(log.contains("TRACE"), "everything was logged");
    let shown: Vec<_> = log.lines().filter(|line| line.contains("c4n4ry")).collect();
    assert!(shown.is_empty(), "{}", shown.join("\n"));
    let body = key.lines().nth(1).unwrap();
    assert!(!log.contains(body), "the private key");
}

/// A broker that logs everything, its hub, and who it is there.
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

    fn broker(&self, plugin: &FakePlugin) -> Broker {
        let config = json!({
            "apiVersion": "credbroker.io/v1alpha1",
            "kind": "BrokerConfig",
            "providers": [{"name": "cloud", "execConfig": plugin.exec_stanza()}],
            "clusterProfiles": {"kubeconfig": self.kubeconfig()},
        });
        Broker::builder(PROGRAM).config(&config.to_string()).env("CREDBROKER_LOG", "trace").start()
    }
}

/// What every caller is told of the hub, as soon as it `is_so`.
async fn hub_state(broker: &Broker, is_so: impl Fn(&HubState) -> bool) -> HubState {
    let mut client = Client::connect(&Socket::at(broker.socket())).await.unwrap();
    let mut messages = client.watch_clusters("").await.unwrap();
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

#[tokio::test]
async fn neither_a_log_nor_a_caller_sees_who_the_broker_is_to_its_hub() {
    let login = FakePlugin::builder().token("c4n4ry-issued").stderr("c4n4ry-stderr").build();
    for user in [json!({"token": "c4n4ry-static"}), json!({"exec": login.exec_stanza()})] {
        let (hub, plugin) = (Hub::start(), FakePlugin::builder().build());
        hub.with_user(&user);
        let broker = hub.broker(&plugin);
        let refused = hub_state(&broker, |hub| !hub.problem.is_empty()).await;
        assert!(!refused.problem.contains("c4n4ry"), "{}", refused.problem);
        hub.server.accept_token("c4n4ry-static");
        hub.server.accept_token("c4n4ry-issued");
        hub_state(&broker, |hub| hub.synced && hub.problem.is_empty()).await;
        hub.server.until_watched(Collection::ClusterProfiles, 1).await;
        assert_no_canary(&broker.stop().1);
    }
}

/// A parser quotes what it does not understand, and what stands around it.
#[tokio::test]
async fn a_kubeconfig_of_the_hub_that_breaks_is_not_quoted() {
    let (hub, plugin) = (Hub::start(), FakePlugin::builder().build());
    hub.server.accept_token("c4n4ry-token");
    hub.with_user(&json!({"token": "c4n4ry-token"}));
    let broker = hub.broker(&plugin);
    hub_state(&broker, |hub| hub.synced).await;
    let whole = std::fs::read_to_string(hub.kubeconfig()).unwrap();
    for broken in [
        whole.replace("\"c4n4ry-token\"", "\"c4n4ry-token\": \"c4n4ry-more\""),
        whole.replace("\"c4n4ry-token\"", "[\"c4n4ry-token\"]"),
        whole.replace("https://", "c4n4ry https://"),
    ] {
        std::fs::write(hub.kubeconfig(), &broken).unwrap();
        hub.server.cut_connections();
        let state = hub_state(&broker, |hub| hub.problem.contains("kubeconfig")).await;
        assert!(!state.problem.contains("c4n4ry"), "{}", state.problem);
        std::fs::write(hub.kubeconfig(), &whole).unwrap();
        hub_state(&broker, |hub| hub.problem.is_empty()).await;
    }
    assert_no_canary(&broker.stop().1);
}

#[tokio::test]
async fn the_password_of_the_hubs_proxy_is_shown_nowhere() {
    for proxy in
        ["http://me:c4n4ry@127.0.0.1:1", "socks5://me:c4n4ry@127.0.0.1:1", "ftp://me:c4n4ry@127.0.0.1:1"]
    {
        let (hub, plugin) = (Hub::start(), FakePlugin::builder().build());
        let cluster = json!({"server": hub.server.url(), "proxy-url": proxy});
        let kubeconfig = Kubeconfig::new().cluster("hub", &cluster).user("hub", &json!({"token": "c4n4ry"}));
        kubeconfig.context("hub", "hub", "hub").write(hub.kubeconfig());
        let broker = hub.broker(&plugin);
        let state = hub_state(&broker, |hub| !hub.problem.is_empty()).await;
        assert!(!state.problem.contains("c4n4ry"), "{}", state.problem);
        assert_no_canary(&broker.stop().1);
    }
}
