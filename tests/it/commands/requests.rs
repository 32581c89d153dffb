//! `get`, `refresh` and `evict`.

use credbroker_test_support::FakePlugin;
use serde_json::json;

use super::{broker, run, stderr, stdout};
use crate::harness::provider;

#[test]
fn refresh_runs_the_plugin_of_a_provider_that_was_never_requested() {
    let plugin = FakePlugin::builder().token_per_run().expires_in(3600).build();
    let broker = broker(&json!([provider("gke", &plugin)]));
    let output = run(&broker, &["refresh", "gke"]);
    assert!(output.status.success(), "{output:?}");
    assert!(stdout(&output).contains("valid"), "{output:?}");
    assert_eq!(plugin.runs(), 1);
    assert!(run(&broker, &["refresh", "gke"]).status.success());
    assert_eq!(plugin.runs(), 2);
    assert_eq!(stdout(&run(&broker, &["evict", "gke"])), "evicted 1 credential\n");
}

#[test]
fn a_credential_that_lives_shorter_than_needed_comes_with_a_note() {
    let plugin = FakePlugin::builder().token_per_run().expires_in(240).build();
    let broker = broker(&json!([provider("gke", &plugin)]));
    let get = |lifetime| run(&broker, &["get", "gke", "-o", "token", "--min-lifetime", lifetime]);
    let output = get("3m");
    assert_eq!(stdout(&output), "token-1\n", "{output:?}");
    assert_eq!(stderr(&output), "");
    let output = get("10m");
    assert_eq!(stdout(&output), "token-1\n", "{output:?}");
    assert_eq!(output.status.code(), Some(0));
    insta::assert_snapshot!(stderr(&output).trim_end(), @"credbroker get: provider gke: the credential expires sooner than --min-lifetime requires: its plugin issued no better credential, or may not run now");
    assert_eq!(plugin.runs(), 1, "the run is a moment ago");
}

#[test]
fn a_first_run_that_fails_fails_the_refresh() {
    let failing = FakePlugin::builder().stderr("no session").exit_code(3).build();
    let mut missing = provider("missing", &failing);
    missing["execConfig"]["command"] = json!("/no/such/plugin");
    let broker = broker(&json!([provider("gke", &failing), missing]));
    let output = run(&broker, &["refresh", "gke"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(stdout(&output).contains("no session"), "{output:?}");
    let output = run(&broker, &["refresh", "missing"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(format!("{}{}", stdout(&output), stderr(&output)).contains("PLUGIN_NOT_FOUND"), "{output:?}");
}

#[test]
fn a_provider_that_needs_a_cluster_is_tried_by_hand() {
    let plugin = FakePlugin::script(
        r#"case $KUBERNETES_EXEC_INFO in *https://paris*) ;; *) exit 5;; esac
echo '{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "for-paris"}}'"#,
    );
    let mut gke = provider("gke", &plugin);
    gke["execConfig"]["provideClusterInfo"] = json!(true);
    let broker = broker(&json!([gke]));
    let output = run(&broker, &["get", "gke", "-o", "token"]);
    assert!(!output.status.success() && stderr(&output).contains("provideClusterInfo"), "{output:?}");

    let output = run(&broker, &["get", "gke", "-o", "token", "--server", "https://paris"]);
    assert_eq!(stdout(&output), "for-paris\n", "{output:?}");

    let kubeconfig = broker.socket().with_file_name("kubeconfig");
    let text = "clusters: [{name: c, cluster: {server: https://paris}}]\n\
                contexts: [{name: paris, context: {cluster: c, user: u}}]\n";
    credbroker_test_support::private_file(&kubeconfig, text);
    let args = ["get", "gke", "-o", "token", "--context", "paris", "--kubeconfig"];
    let output = run(&broker, &[&args[..], &[kubeconfig.to_str().unwrap()]].concat());
    assert_eq!(stdout(&output), "for-paris\n", "{output:?}");
    assert_eq!(plugin.runs(), 1, "the cluster is the same");

    let output =
        run(&broker, &["get", "gke", "--context", "rome", "--kubeconfig", kubeconfig.to_str().unwrap()]);
    assert!(stderr(&output).contains("no context `rome`; its contexts are: paris"), "{output:?}");
}
