//! The test API server as a hub: what kubectl makes of it is what makes it a stand-in for a real one.

use std::path::PathBuf;

use credbroker_test_support::{Accepts, ApiServer, Collection, Kubeconfig};
use serde_json::{Value, json};

use super::{Kubectl, failure, stdout};

fn hub(kubectl: &Kubectl) -> (ApiServer, PathBuf) {
    let server = ApiServer::start(Accepts::Tokens);
    server.accept_token("admin");
    let path = kubectl.dir().join("config");
    let user = json!({"token": "admin"});
    let config = Kubeconfig::new().cluster_of(&server, "hub").user("admin", &user);
    config.context("hub", "hub", "admin").write(&path);
    (server, path)
}

fn profile() -> Value {
    json!({"spec": {"clusterManager": {"name": "m"}, "displayName": "d"}})
}

#[test]
fn profiles_are_listed_in_pages_and_by_label() {
    let kubectl = Kubectl::new();
    let (server, config) = hub(&kubectl);
    server.apply_cluster_profiles((1..=5).map(|n| (format!("ns-{}", n % 2), format!("c-{n}"), profile())));
    let list = [
        "get",
        "clusterprofiles",
        "-A",
        "--chunk-size=2",
        "--no-headers",
        "-o",
        "custom-columns=N:metadata.name",
    ];
    assert_eq!(stdout(&kubectl.run(&config, &list)), "c-2\nc-4\nc-1\nc-3\nc-5\n");
    assert_eq!(server.lists(Collection::ClusterProfiles), 3);

    stdout(&kubectl.run(&config, &["label", "clusterprofiles", "-n", "ns-0", "c-4", "env=prod"]));
    let list = ["get", "clusterprofiles", "-A", "-l", "env in (prod, test)", "-o", "name"];
    let said = stdout(&kubectl.run(&config, &list));
    assert_eq!(said, "clusterprofile.multicluster.x-k8s.io/c-4\n");
}

#[test]
fn a_profile_is_applied_changed_and_refused() {
    let kubectl = Kubectl::new();
    let (_server, config) = hub(&kubectl);
    let mut manifest = profile();
    manifest["apiVersion"] = json!("multicluster.x-k8s.io/v1alpha1");
    manifest["kind"] = json!("ClusterProfile");
    manifest["metadata"] = json!({"name": "c", "namespace": "fleet"});
    let apply = ["apply", "-f", "-", "--validate=false"];
    for expected in ["created", "unchanged"] {
        let said = stdout(&kubectl.run_with_stdin(&config, &apply, &manifest.to_string()));
        assert_eq!(said, format!("clusterprofile.multicluster.x-k8s.io/c {expected}\n"));
    }
    manifest["spec"]["displayName"] = json!(["an array"]);
    let said = failure(&kubectl.run_with_stdin(&config, &apply, &manifest.to_string()));
    assert!(said.contains("spec.displayName"), "{said}");
    assert!(said.contains("must be of type string"), "{said}");
}

#[test]
fn a_deletion_is_waited_for() {
    let kubectl = Kubectl::new();
    let (server, config) = hub(&kubectl);
    server.apply_cluster_profile("fleet", "c", profile());
    let wait = ["wait", "-n", "fleet", "clusterprofiles/c", "--for=delete", "--timeout=30s"];
    let waiting = kubectl.command(&config, &wait).stdout(std::process::Stdio::piped()).spawn().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(server.until_watched(Collection::ClusterProfiles, 1));
    server.delete_cluster_profile("fleet", "c");
    stdout(&waiting.wait_with_output().unwrap());
}

#[test]
fn a_secret_is_read_by_a_template() {
    let kubectl = Kubectl::new();
    let (server, config) = hub(&kubectl);
    server.put_secret("fleet", "prod", &[("token", b"s3cret")]);
    let template = "go-template={{.data.token | base64decode}}";
    let said = stdout(&kubectl.run(&config, &["get", "secret", "-n", "fleet", "prod", "-o", template]));
    assert_eq!(said, "s3cret");
    let said = failure(&kubectl.run(&config, &["get", "secret", "-n", "fleet", "other", "-o", template]));
    assert!(said.contains(r#"secrets "other" not found"#), "{said}");
}
