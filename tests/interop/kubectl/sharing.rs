//! Many commands, one plugin run; and never one identity for two.

use std::time::Duration;

use credbroker_test_support::{Accepts, ApiServer, Broker, FakePlugin, Kubeconfig};
use serde_json::json;

use super::{Kubectl, V1, V1BETA1, api_versions, newest_api_version, stdout};
use crate::programs::{broker, shim_stanza};

const COMMANDS: usize = 30;

#[test]
fn without_a_broker_every_command_runs_the_plugin() {
    let server = ApiServer::start(Accepts::Tokens);
    server.accept_token("plain");
    let plugin =
        FakePlugin::builder().token("plain").expires_in(3600).api_version(newest_api_version()).build();
    let kubectl = Kubectl::new();
    let kubeconfig = kubectl.dir().join("config");
    Kubeconfig::for_server(&server, "prod", &plugin.exec_stanza()).write(&kubeconfig);
    for _ in 0..3 {
        assert!(stdout(&kubectl.run(&kubeconfig, &["get", "pods"])).contains("web-0"));
    }
    assert_eq!(plugin.runs(), 3);
}

#[test]
fn thirty_commands_with_a_token_are_one_plugin_run() {
    let server = ApiServer::start(Accepts::Tokens);
    server.accept_token("token-1");
    let plugin = FakePlugin::builder().token_per_run().expires_in(3600).build();
    thirty_commands_are_one_run(&server, &plugin);
    assert_eq!(server.seen_tokens(), ["token-1"]);
}

#[test]
fn thirty_commands_with_a_client_certificate_are_one_plugin_run() {
    let server = ApiServer::start(Accepts::Certificates);
    let (certificate, key) = server.issue_client_certificate("jane", Duration::from_secs(3600));
    let plugin = FakePlugin::builder().pair(&certificate, &key).build();
    thirty_commands_are_one_run(&server, &plugin);
    assert_eq!(server.seen_certificates(), ["jane"]);
}

fn thirty_commands_are_one_run(server: &ApiServer, plugin: &FakePlugin) {
    let broker = Broker::builder(broker())
        .providers(&json!([{"name": "corp", "execConfig": plugin.exec_stanza()}]))
        .start();
    let kubectl = Kubectl::new();
    let kubeconfig = kubectl.dir().join("config");
    let stanza = shim_stanza(newest_api_version(), "corp", &broker.socket());
    Kubeconfig::for_server(server, "prod", &stanza).write(&kubeconfig);
    for _ in 0..COMMANDS {
        assert!(stdout(&kubectl.run(&kubeconfig, &["get", "pods"])).contains("web-0"));
    }
    assert_eq!(plugin.runs(), 1);
    assert!(server.requests().iter().all(|request| request.status == 200));
}

#[test]
fn the_shim_answers_in_the_version_of_the_stanza_and_not_of_the_plugin() {
    let server = ApiServer::start(Accepts::Tokens);
    server.accept_token("either");
    let old = FakePlugin::builder().token("either").api_version(V1BETA1).build();
    let new = FakePlugin::builder().token("either").api_version(V1).build();
    let broker = Broker::builder(broker())
        .providers(&json!([
            {"name": "old", "execConfig": old.exec_stanza()},
            {"name": "new", "execConfig": new.exec_stanza()},
        ]))
        .start();
    let kubectl = Kubectl::new();
    let kubeconfig = kubectl.dir().join("config");
    for version in api_versions() {
        for provider in ["old", "new"] {
            let stanza = shim_stanza(version, provider, &broker.socket());
            Kubeconfig::for_server(&server, "prod", &stanza).write(&kubeconfig);
            let version = stdout(&kubectl.run(&kubeconfig, &["get", "--raw", "/version"]));
            assert!(version.contains("gitVersion"), "{version}");
        }
    }
    assert_eq!((old.runs(), new.runs()), (1, 1));
}

/// client-go hands the last context's extension to both; a broker must not.
#[test]
fn two_contexts_of_one_user_get_the_credentials_of_their_clusters() {
    let server = ApiServer::start(Accepts::Tokens);
    server.accept_token("for-blue");
    server.accept_token("for-green");
    let plugin = FakePlugin::script(
        r#"audience=$(printf %s "$KUBERNETES_EXEC_INFO" | sed -n 's/.*"audience":"\([a-z]*\)".*/\1/p')
printf '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"for-%s"}}' "$audience""#,
    );
    let broker = Broker::builder(broker())
        .providers(&json!([{"name": "corp", "execConfig": plugin.exec_stanza()}]))
        .start();
    let kubectl = Kubectl::new();
    let kubeconfig = kubectl.dir().join("config");
    Kubeconfig::new()
        .cluster_with_exec_config(&server, "blue", &json!({"audience": "blue"}))
        .cluster_with_exec_config(&server, "green", &json!({"audience": "green"}))
        .exec_user("shared", &shim_stanza(newest_api_version(), "corp", &broker.socket()))
        .context("blue", "blue", "shared")
        .context("green", "green", "shared")
        .write(&kubeconfig);
    for context in ["blue", "green", "blue", "green"] {
        server.forget_requests();
        stdout(&kubectl.run(&kubeconfig, &["--context", context, "get", "pods"]));
        assert_eq!(server.seen_tokens(), [format!("for-{context}")]);
    }
    let infos = plugin.exec_infos();
    assert_eq!(infos.len(), 2, "{infos:?}");
    assert!(infos.iter().all(|info| info.contains(&server.url())), "{infos:?}");
}
