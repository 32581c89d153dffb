//! `examples/plugins/secretreader` as its README configures it, with the real kubectl and a hub that has Secrets.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
    time::Duration,
};

use credbroker_test_support::{Accepts, ApiServer, Broker, Kubeconfig, private_directory, sample_config};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    fleet::{Walker, cluster_of, profile, until},
    kubectl::failure,
    programs::{broker, shim, shim_stanza},
};

#[test]
fn a_secret_with_a_token_is_the_clusters_credential() {
    let hub = Hub::start();
    hub.server.put_secret("fleet", "eu-1", &[("token", b"token-of-eu-1"), ("tls.crt", b"half a pair")]);
    hub.server.put_secret("fleet", "eu-2", &[("token", b"token-of-eu-2")]);
    let status = |name: &str| hub.credential(&json!({"clusterName": name}))["status"].clone();
    assert_eq!(status("eu-1")["token"], "token-of-eu-1");
    assert!(status("eu-1").get("clientCertificateData").is_none(), "half a pair is none");
    assert_eq!(status("eu-2")["token"], "token-of-eu-2");
    assert_eq!(
        hub.secrets_read(),
        ["/api/v1/namespaces/fleet/secrets/eu-1", "/api/v1/namespaces/fleet/secrets/eu-2"]
    );
    // Only the value of the field `clusterName` counts.
    let config = json!({
        "a": {"clusterName": "eu-1"},
        "b\",\"clusterName": "eu-1",
        "c": ["clusterName", {"clusterName": "eu-1"}],
        "clusterName": "eu-2",
        "d": "\"clusterName\":\"eu-1\"",
    });
    assert_eq!(hub.credential(&config)["status"]["token"], "token-of-eu-2");
}

#[test]
fn a_secret_with_a_certificate_and_its_key_lets_kubectl_in() {
    let hub = Hub::start();
    let member = ApiServer::start(Accepts::Certificates);
    let (certificate, key) = member.issue_client_certificate("eu-1", Duration::from_secs(3600));
    hub.server.put_secret(
        "fleet",
        "eu-1",
        &[("tls.crt", certificate.as_bytes()), ("tls.key", key.as_bytes())],
    );
    let status = &hub.credential(&json!({"clusterName": "eu-1"}))["status"];
    assert_eq!(
        (&status["clientCertificateData"], &status["clientKeyData"]),
        (&json!(certificate), &json!(key))
    );
    assert!(status.get("token").is_none());

    let home = private_directory();
    let kubeconfig = home.path().join("config");
    let stanza = shim_stanza("client.authentication.k8s.io/v1beta1", "secretreader", &hub.broker.socket());
    Kubeconfig::new()
        .cluster_with_exec_config(&member, "eu-1", &json!({"clusterName": "eu-1"}))
        .exec_user("eu-1", &stanza)
        .context("eu-1", "eu-1", "eu-1")
        .write(&kubeconfig);
    let mut kubectl = Command::new("kubectl");
    kubectl.args(["get", "pods"]).env_clear().env("PATH", std::env::var_os("PATH").unwrap());
    let output = kubectl.env("HOME", home.path()).env("KUBECONFIG", &kubeconfig).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(member.seen_certificates(), ["eu-1"]);
}

/// The hub has both: which clusters there are, and the Secret of each.
#[test]
fn a_cluster_profile_names_its_secret_and_kubectl_walks_the_fleet_with_it() {
    let hub = Hub::start();
    let [eu_1, eu_2] = ["eu-1", "eu-2"].map(|name| {
        let member = ApiServer::start(Accepts::Tokens);
        let token = format!("token-of-{name}");
        member.accept_token(&token);
        hub.server.put_secret("fleet", name, &[("token", token.as_bytes())]);
        let extension = [("client.authentication.k8s.io/exec", json!({"clusterName": name}))];
        hub.server.apply_cluster_profile(
            "fleet",
            name,
            profile("secretreader", &cluster_of(&member, &extension)),
        );
        member
    });
    until(&hub.broker, |fleet| fleet.len() == 2);
    let walker = Walker::new();
    walker.write(&hub.broker);
    for _ in 0..2 {
        walker.reach("eu-1");
        walker.reach("eu-2");
    }
    assert_eq!(
        (eu_1.seen_tokens(), eu_2.seen_tokens()),
        (vec!["token-of-eu-1".to_owned()], vec!["token-of-eu-2".to_owned()])
    );
    let secrets = hub.secrets_read();
    assert_eq!(secrets, ["/api/v1/namespaces/fleet/secrets/eu-1", "/api/v1/namespaces/fleet/secrets/eu-2"]);
}

/// Who may write the kubeconfig chooses no Secret: the broker takes the name from the hub.
#[test]
fn a_kubeconfig_of_the_fleet_that_names_another_secret_is_refused() {
    let hub = Hub::start();
    let member = ApiServer::start(Accepts::Tokens);
    hub.server.put_secret("fleet", "admin", &[("token", b"secret-of-others")]);
    let extension = |name: &str| [("client.authentication.k8s.io/exec", json!({"clusterName": name}))];
    let place = cluster_of(&member, &extension("eu-1"));
    hub.server.apply_cluster_profile("fleet", "eu-1", profile("secretreader", &place));
    until(&hub.broker, |fleet| fleet.len() == 1);
    let walker = Walker::new();
    walker.write(&hub.broker);
    let written = fs::read_to_string(walker.kubeconfig()).unwrap();
    let server = format!("    server: {}\n", member.url());
    assert!(written.contains(&server), "{written}");
    let forged = "    extensions:\n    - name: client.authentication.k8s.io/exec\n      extension: {clusterName: admin}\n";
    fs::write(walker.kubeconfig(), written.replace(&server, &format!("{server}{forged}"))).unwrap();

    let said = failure(&walker.pods("eu-1"));
    assert!(said.contains("CLUSTER_MISMATCH") && said.contains("its exec extension is different"), "{said}");
    assert_eq!((hub.secrets_read(), member.requests()), (vec![], vec![]));
}

#[test]
fn a_name_that_is_none_is_refused_before_kubectl_runs() {
    let hub = Hub::start();
    for name in
        ["../x", "-o", "--all-namespaces", ".x", "a/b", "a b", "a\nb", "A", "a\"b", "a\\b", "$(id)", "é"]
    {
        let complaint = hub.failure(&json!({"clusterName": name}));
        assert!(complaint.contains("PLUGIN_EXIT"), "{name:?}: {complaint}");
        assert!(complaint.contains("clusterName is not the name of an object"), "{name:?}: {complaint}");
    }
    let wrong = [
        json!(null),
        json!({}),
        json!({"clusterName": ""}),
        json!({"clusterName": null}),
        json!(["clusterName", "x"]),
    ];
    for config in wrong {
        let complaint = hub.failure(&config);
        assert!(complaint.contains("PLUGIN_EXIT"), "{config}: {complaint}");
        assert!(complaint.contains("no clusterName in spec.cluster.config"), "{config}: {complaint}");
    }
    assert_eq!(hub.secrets_read(), [""; 0], "no request reached the hub");
}

#[test]
fn a_secret_that_is_missing_or_lacks_a_key_is_named() {
    let hub = Hub::start();
    hub.server.put_secret("other", "eu-1", &[("token", b"secret-of-others")]);
    hub.server.put_secret("fleet", "empty", &[]);
    hub.server.put_secret("fleet", "half", &[("tls.key", b"secret-half"), ("token", b"")]);
    let complaint = hub.failure(&json!({"clusterName": "eu-1"}));
    assert!(complaint.contains("PLUGIN_EXIT") && complaint.contains("no Secret fleet/eu-1"), "{complaint}");
    for name in ["empty", "half"] {
        let complaint = hub.failure(&json!({"clusterName": name}));
        let said = format!("the Secret fleet/{name} has neither token nor both of tls.crt and tls.key");
        assert!(complaint.contains("PLUGIN_EXIT") && complaint.contains(&said), "{complaint}");
        assert!(!complaint.contains("secret-"), "{complaint}");
    }
}

#[test]
fn what_kubectl_says_is_in_the_answer() {
    let hub = Hub::start();
    hub.server.put_secret("fleet", "eu-1", &[("token", b"secret")]);
    hub.server.revoke_token("hub");
    let complaint = hub.failure(&json!({"clusterName": "eu-1"}));
    assert!(complaint.contains("kubectl cannot read the Secret fleet/eu-1"), "{complaint}");
    assert!(complaint.contains("error: You must be logged in to the server"), "{complaint}");
}

/// A hub, and a broker of the README's provider whose home has a kubeconfig for it, by which it reads `ClusterProfile`s.
struct Hub {
    server: ApiServer,
    broker: Broker,
    _home: TempDir,
}

impl Hub {
    fn start() -> Self {
        let server = ApiServer::start(Accepts::Tokens);
        server.accept_token("hub");
        let home = private_directory();
        fs::create_dir(home.path().join(".kube")).unwrap();
        Kubeconfig::new()
            .cluster_of(&server, "hub")
            .user("hub", &json!({"token": "hub"}))
            .context("hub", "hub", "hub")
            .write(home.path().join(".kube/config"));
        let config = sample_config("secretreader") + "clusterProfiles: {kubeconfig: ~/.kube/config}\n";
        let broker = Broker::builder(broker()).config(&config).env("HOME", home.path());
        Self { server, broker: broker.start(), _home: home }
    }

    /// The shim's answer for a cluster with this exec extension.
    fn ask(&self, config: &Value) -> Output {
        let cluster = json!({"server": "https://127.0.0.1:1", "config": config});
        let spec = json!({"interactive": false, "cluster": cluster});
        let info =
            json!({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "spec": spec});
        let socket = self.broker.socket();
        let mut command = Command::new(shim());
        command.args([Path::new("--provider"), Path::new("secretreader"), Path::new("--socket"), &socket]);
        command.env_clear().env("KUBERNETES_EXEC_INFO", info.to_string()).output().unwrap()
    }

    #[track_caller]
    fn credential(&self, config: &Value) -> Value {
        let output = self.ask(config);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    #[track_caller]
    fn failure(&self, config: &Value) -> String {
        let output = self.ask(config);
        assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(1), &[][..]), "{config}");
        String::from_utf8(output.stderr).unwrap()
    }

    fn secrets_read(&self) -> Vec<String> {
        let paths = self.server.requests().into_iter().map(|request| request.path);
        paths.filter(|path| path.contains("/secrets")).collect()
    }
}
