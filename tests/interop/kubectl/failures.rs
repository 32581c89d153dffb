//! What a user at a terminal reads when there is no credential.

use std::time::{Duration, Instant};

use credbroker_test_support::{Accepts, ApiServer, Broker, FakePlugin, Kubeconfig};
use serde_json::json;

use super::{Kubectl, failure, newest_api_version};
use crate::programs::{broker, shim_stanza};

#[test]
fn without_a_broker_the_error_names_the_socket_and_the_command_that_starts_one() {
    let server = ApiServer::start(Accepts::Tokens);
    let kubectl = Kubectl::new();
    let kubeconfig = kubectl.dir().join("config");
    let socket = kubectl.dir().join("absent.sock");
    Kubeconfig::for_server(&server, "prod", &shim_stanza(newest_api_version(), "corp", &socket))
        .write(&kubeconfig);
    let said = failure(&kubectl.run(&kubeconfig, &["get", "--raw", "/version"]));
    assert!(said.contains(socket.to_str().unwrap()), "{said}");
    assert!(said.contains("credbroker serve"), "{said}");
    assert_eq!(server.requests(), [], "nothing is sent without an identity");
}

#[test]
fn a_plugin_that_fails_is_named_with_what_it_said() {
    let server = ApiServer::start(Accepts::Tokens);
    let plugin = FakePlugin::builder().stderr("your session has ended, please log in").exit_code(7).build();
    let broker = Broker::builder(broker())
        .providers(&json!([{"name": "corp", "execConfig": plugin.exec_stanza()}]))
        .start();
    let kubectl = Kubectl::new();
    let kubeconfig = kubectl.dir().join("config");
    let stanza = shim_stanza(newest_api_version(), "corp", &broker.socket());
    Kubeconfig::for_server(&server, "prod", &stanza).write(&kubeconfig);
    let said = failure(&kubectl.run(&kubeconfig, &["get", "--raw", "/version"]));
    assert!(said.contains("corp"), "{said}");
    assert!(said.contains("your session has ended, please log in"), "{said}");
}

/// A plugin that itself uses kubectl, with the kubeconfig that has the shim in it, would wait for itself.
#[test]
fn a_plugin_that_leads_back_to_the_shim_fails_at_once() {
    let server = ApiServer::start(Accepts::Tokens);
    let kubectl = Kubectl::new();
    let kubeconfig = kubectl.dir().join("config");
    let script = format!("exec kubectl --kubeconfig '{}' get --raw /version", kubeconfig.display());
    let plugin = FakePlugin::script(&script);
    let broker = Broker::builder(broker())
        .providers(&json!([{"name": "corp", "execConfig": plugin.exec_stanza()}]))
        .start();
    let stanza = shim_stanza(newest_api_version(), "corp", &broker.socket());
    Kubeconfig::for_server(&server, "prod", &stanza).write(&kubeconfig);
    let started = Instant::now();
    let said = failure(&kubectl.run(&kubeconfig, &["get", "--raw", "/version"]));
    assert!(said.contains("RECURSION"), "{said}");
    // Far from the plugin's own limit of 30 s, at which it would end in any case.
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
    assert_eq!(plugin.runs(), 1);
}
