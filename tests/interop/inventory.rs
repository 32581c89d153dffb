//! Controllers that use cluster-inventory-api's Go library: for each ClusterProfile it makes a client whose exec plugin
//! is the shim, and passes it the profile's cluster. `tests/interop/go` is such a controller.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use credbroker_test_support::{Accepts, ApiServer, Broker, FakePlugin, private_directory};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    fleet::{Hub, cluster_of, profile, until},
    programs::{broker, shim},
};

const CONFIG_EXTENSION: &str = "client.authentication.k8s.io/exec";
const ARGS_EXTENSION: &str = "clusterprofiles.multicluster.x-k8s.io/exec/additional-args";

#[test]
fn controllers_share_one_run_that_gets_the_cluster_of_the_profile() {
    let server = ApiServer::start(Accepts::Tokens);
    server.accept_token("token-1");
    let plugin = FakePlugin::builder().token_per_run().expires_in(3600).build();
    let broker = serving(&any_cluster(&plugin));
    let controller = Controller::of(&broker, &json!({}));
    let config = json!({"clusterName": "prod", "tenant": {"id": 7}});
    let profile = controller.profile("prod", &server, &[(CONFIG_EXTENSION, config.clone())]);

    for _ in 0..3 {
        let reached = controller.reach(&[&profile], 2);
        assert_eq!(reached.answers, [ok("fleet/prod", 2)], "{}", reached.stderr);
    }
    assert_eq!(received_clusters(&plugin), [cluster_info(&server, &config)]);
    assert_eq!(server.seen_tokens(), ["token-1"]);
}

#[test]
fn two_profiles_are_two_runs_and_each_gets_its_cluster() {
    let (blue, green) = (ApiServer::start(Accepts::Tokens), ApiServer::start(Accepts::Tokens));
    blue.accept_token("for-blue");
    green.accept_token("for-green");
    let plugin = FakePlugin::script(
        r#"name=$(printf %s "$KUBERNETES_EXEC_INFO" | sed -n 's/.*"clusterName":"\([a-z]*\)".*/\1/p')
printf '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"for-%s"}}' "$name""#,
    );
    let broker = serving(&any_cluster(&plugin));
    let controller = Controller::of(&broker, &json!({}));
    let config = |name: &str| json!({"clusterName": name});
    let profiles = [("blue", &blue), ("green", &green)]
        .map(|(name, server)| controller.profile(name, server, &[(CONFIG_EXTENSION, config(name))]));

    for _ in 0..2 {
        let reached = controller.reach(&[&profiles[0], &profiles[1], &profiles[0]], 1);
        let expected = [ok("fleet/blue", 1), ok("fleet/green", 1), ok("fleet/blue", 1)];
        assert_eq!(reached.answers, expected, "{}", reached.stderr);
    }
    assert_eq!(
        received_clusters(&plugin),
        [cluster_info(&blue, &config("blue")), cluster_info(&green, &config("green"))]
    );
    assert_eq!(
        (blue.seen_tokens(), green.seen_tokens()),
        (vec!["for-blue".into()], vec!["for-green".into()])
    );
}

/// They are meant for the real plugin, and the library gives them to the program that it starts, the shim. It also
/// keeps them for every profile that comes after.
#[test]
fn arguments_that_a_profile_adds_to_the_shim_are_refused_before_anything_is_asked() {
    let server = ApiServer::start(Accepts::Tokens);
    server.accept_token("token-1");
    let plugin = FakePlugin::builder().token_per_run().expires_in(3600).build();
    let broker = serving(&any_cluster(&plugin));
    let arguments = [(ARGS_EXTENSION, json!(["--cluster-id=prod"]))];

    let appending = Controller::of(&broker, &json!({"profileSourcedCLIArgsPolicy": "Append"}));
    let with = appending.profile("with", &server, &arguments);
    let without = appending.profile("without", &server, &[]);
    let refused = appending.reach(&[&without, &with, &without], 1);
    assert_eq!(refused.answers[0], ok("fleet/without", 1), "{}", refused.stderr);
    for (answer, profile) in refused.answers[1..].iter().zip(["fleet/with", "fleet/without"]) {
        assert_eq!((&answer["profile"], &answer["statuses"]), (&json!(profile), &json!([])));
        assert!(answer["errors"][0].as_str().unwrap().contains("failed with exit code 2"), "{answer}");
    }
    let reason = r#""--cluster-id=prod" is not an argument of this command"#;
    assert!(refused.stderr.contains(reason), "{}", refused.stderr);
    // For the first profile alone.
    assert_eq!(plugin.runs(), 1);

    let ignoring = Controller::of(&broker, &json!({}));
    let with = ignoring.profile("with", &server, &arguments);
    let reached = ignoring.reach(&[&with], 1);
    assert_eq!(reached.answers, [ok("fleet/with", 1)], "{}", reached.stderr);
    assert_eq!(plugin.runs(), 1);
}

/// The broker and the controller read the same ClusterProfiles.
#[test]
fn a_cluster_that_the_broker_knows_is_the_run_of_its_profile() {
    let member = ApiServer::start(Accepts::Tokens);
    member.accept_token("token-1");
    let plugin = FakePlugin::builder().token_per_run().expires_in(3600).build();
    let hub = Hub::start();
    // What Go writes otherwise than it was: `<` and the blank before a colon.
    let config = json!({"clusterName": "prod", "tenant": {"id": 7, "note": "a<b & c"}});
    let place = cluster_of(&member, &[(CONFIG_EXTENSION, config.clone())]);
    hub.profile("prod", "cloud", &place);
    let broker = hub.broker(&known_clusters(&plugin));
    until(&broker, |fleet| fleet.len() == 1);
    let controller = Controller::of(&broker, &json!({}));
    let prod = controller.profile_at("prod", &place);

    for _ in 0..2 {
        let reached = controller.reach(&[&prod], 2);
        assert_eq!(reached.answers, [ok("fleet/prod", 2)], "{}", reached.stderr);
    }
    let asked = Command::new(shim())
        .args(["--cluster-profile", "fleet/prod", "--socket"])
        .arg(broker.socket())
        .env_clear()
        .output()
        .unwrap();
    let answer: Value = serde_json::from_slice(&asked.stdout).unwrap();
    assert_eq!(answer["status"]["token"], "token-1");
    assert_eq!(received_clusters(&plugin), [cluster_info(&member, &config)], "all of them are one run");
    assert_eq!(member.seen_tokens(), ["token-1"]);
}

#[test]
fn a_cluster_that_the_broker_does_not_know_so_is_denied_and_runs_nothing() {
    let [member, other] = [(); 2].map(|()| ApiServer::start(Accepts::Tokens));
    let plugin = FakePlugin::builder().token_per_run().expires_in(3600).build();
    let hub = Hub::start();
    let config = |name: &str| [(CONFIG_EXTENSION, json!({"clusterName": name}))];
    let place = cluster_of(&member, &config("prod"));
    hub.profile("prod", "cloud", &place);
    let broker = hub.broker(&known_clusters(&plugin));
    until(&broker, |fleet| fleet.len() == 1);
    let controller = Controller::of(&broker, &json!({}));

    let mut authority = place;
    authority["certificate-authority-data"] = json!(STANDARD.encode(other.ca_pem()));
    let altered = [
        ("authority", authority, "its certificate authorities are different"),
        ("config", cluster_of(&member, &config("admin")), "its exec extension is different"),
        ("server", cluster_of(&other, &config("prod")), "no known cluster has its server"),
    ];
    for (name, place, reason) in altered {
        let reached = controller.reach(&[&controller.profile_at(name, &place)], 1);
        assert_eq!(reached.answers[0]["statuses"], json!([]), "{name}");
        let code = "failed with exit code 1";
        assert!(reached.answers[0]["errors"][0].as_str().unwrap().contains(code), "{reached:?}");
        assert!(reached.stderr.contains("CLUSTER_MISMATCH"), "{reached:?}");
        assert!(reached.stderr.contains(reason), "{reached:?}");
    }
    assert_eq!((member.requests(), other.requests(), plugin.runs()), (vec![], vec![], 0));
}

/// A provider `cloud` for clusters that the broker knows itself, and no others.
fn known_clusters(plugin: &FakePlugin) -> Value {
    json!([{"name": "cloud", "execConfig": plugin.exec_stanza(), "clusterInfo": "Match"}])
}

/// The config of a broker whose one provider, `cloud`, passes the cluster of the caller to the plugin.
fn any_cluster(plugin: &FakePlugin) -> String {
    let config = json!({
        "apiVersion": "credbroker.io/v1alpha1",
        "kind": "BrokerConfig",
        "providers": [{"name": "cloud", "execConfig": plugin.exec_stanza(), "clusterInfo": "FromCaller"}],
    });
    config.to_string()
}

/// A broker with this configuration, which must have a provider `cloud`.
fn serving(config: &str) -> Broker {
    Broker::builder(broker()).config(config).start()
}

/// What a controller has: the provider file, which names the shim, and `ClusterProfiles`.
struct Controller {
    directory: TempDir,
}

/// What it said: a line for each profile.
#[derive(Debug)]
struct Reached {
    answers: Vec<Value>,
    stderr: String,
}

impl Controller {
    /// With one provider, `cloud`, that has these policies besides.
    fn of(broker: &Broker, policies: &Value) -> Self {
        let directory = private_directory();
        let mut provider = json!({
            "name": "cloud",
            "execConfig": {
                "apiVersion": "client.authentication.k8s.io/v1",
                "command": shim(),
                "args": ["--provider", "cloud"],
                "env": [{"name": "CREDBROKER_SOCKET", "value": broker.socket()}],
                "provideClusterInfo": true,
            },
        });
        provider.as_object_mut().unwrap().extend(policies.as_object().unwrap().clone());
        let file = json!({"providers": [provider]}).to_string();
        std::fs::write(directory.path().join("providers.json"), file).unwrap();
        Self { directory }
    }

    /// `fleet/NAME`, whose cluster is `server`, understood by the provider `cloud`.
    fn profile(&self, name: &str, server: &ApiServer, extensions: &[(&str, Value)]) -> PathBuf {
        self.profile_at(name, &cluster_of(server, extensions))
    }

    /// The same for a cluster as it is written.
    fn profile_at(&self, name: &str, cluster: &Value) -> PathBuf {
        let mut profile = profile("cloud", cluster);
        profile["apiVersion"] = json!("multicluster.x-k8s.io/v1alpha1");
        profile["kind"] = json!("ClusterProfile");
        profile["metadata"] = json!({"namespace": "fleet", "name": name});
        let file = self.directory.path().join(format!("{name}.json"));
        std::fs::write(&file, profile.to_string()).unwrap();
        file
    }

    /// In one process, so many requests to each cluster in turn.
    fn reach(&self, profiles: &[&Path], gets: usize) -> Reached {
        let output = Command::new(program())
            .arg("-clusterprofile-provider-file")
            .arg(self.directory.path().join("providers.json"))
            .args(["-gets", &gets.to_string()])
            .args(profiles)
            .env_clear()
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{stderr}");
        let stdout = String::from_utf8(output.stdout).unwrap();
        Reached { answers: stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect(), stderr }
    }
}

fn ok(profile: &str, gets: usize) -> Value {
    json!({"profile": profile, "statuses": vec![200; gets], "errors": []})
}

/// The clusters that the plugin received, one per run.
fn received_clusters(plugin: &FakePlugin) -> Vec<Value> {
    let cluster = |info: &String| serde_json::from_str::<Value>(info).unwrap()["spec"]["cluster"].take();
    plugin.exec_infos().iter().map(cluster).collect()
}

fn cluster_info(server: &ApiServer, config: &Value) -> Value {
    json!({
        "server": server.url(),
        "certificate-authority-data": STANDARD.encode(server.ca_pem()),
        "config": config,
    })
}

/// The controller, of Go.
fn program() -> PathBuf {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/inventory");
    assert!(
        program.is_file(),
        "no {}; build it with: go build -C tests/interop/go -buildvcs=false -o ../../../target/inventory",
        program.display()
    );
    program
}
