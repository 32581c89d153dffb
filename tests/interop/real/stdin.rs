//! Standard input belongs to kubectl, not to the shim.

use credbroker_test_support::Broker;
use serde_json::{Value, json};

use super::ControlPlane;
use crate::{
    kubectl::{Kubectl, newest_api_version, stdout},
    programs::{broker, shim_stanza},
};

#[test]
fn what_is_applied_from_stdin_reaches_the_server_whole() {
    let Some(plane) = ControlPlane::shared() else { return };
    let plugin = plane.plugin("token", "ann", 3600);
    let mut stanza = plugin.exec_stanza();
    stanza["interactiveMode"] = json!("IfAvailable");
    let broker =
        Broker::builder(broker()).providers(&json!([{"name": "corp", "execConfig": stanza}])).start();
    let kubectl = Kubectl::new();
    let kubeconfig = kubectl.dir().join("config");
    let mut stanza = shim_stanza(newest_api_version(), "corp", &broker.socket());
    stanza["interactiveMode"] = json!("IfAvailable");
    plane.kubeconfig(&kubeconfig, &json!({"exec": stanza}));

    let text = "All work and no play. ".repeat(4000);
    let manifest = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "big", "namespace": plane.namespace},
        "data": {"text": text},
    });
    let apply = ["apply", "-f", "-", "--validate=false"];
    let said = stdout(&kubectl.run_with_stdin(&kubeconfig, &apply, &manifest.to_string()));
    assert_eq!(said, "configmap/big created\n");
    let path = format!("/api/v1/namespaces/{}/configmaps/big", plane.namespace);
    assert_eq!(plane.admin("GET", &path, &Value::Null)["data"]["text"], text);
}
