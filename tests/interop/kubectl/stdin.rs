//! Standard input belongs to kubectl, not to the shim.

use credbroker_test_support::{Accepts, ApiServer, Broker, FakePlugin, Kubeconfig};
use serde_json::{Value, json};

use super::{Kubectl, newest_api_version, stdout};
use crate::programs::{broker, shim_stanza};

#[test]
fn what_is_applied_from_stdin_reaches_the_server_whole() {
    let server = ApiServer::start(Accepts::Tokens);
    server.accept_token("plain");
    let plugin = FakePlugin::builder().token("plain").build();
    let mut stanza = plugin.exec_stanza();
    stanza["interactiveMode"] = json!("IfAvailable");
    let broker =
        Broker::builder(broker()).providers(&json!([{"name": "corp", "execConfig": stanza}])).start();
    let kubectl = Kubectl::new();
    let kubeconfig = kubectl.dir().join("config");
    let mut stanza = shim_stanza(newest_api_version(), "corp", &broker.socket());
    stanza["interactiveMode"] = json!("IfAvailable");
    Kubeconfig::for_server(&server, "prod", &stanza).write(&kubeconfig);

    let text = "All work and no play. ".repeat(4000);
    let manifest = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "big", "namespace": "default"},
        "data": {"text": text},
    });
    let apply = ["apply", "-f", "-", "--validate=false"];
    let said = stdout(&kubectl.run_with_stdin(&kubeconfig, &apply, &manifest.to_string()));
    assert_eq!(said, "configmap/big created\n");
    let requests = server.requests();
    let post = requests.iter().find(|request| request.method == "POST").unwrap();
    let sent: Value = serde_json::from_str(&post.body).unwrap();
    assert_eq!(sent["data"]["text"], text);
}
