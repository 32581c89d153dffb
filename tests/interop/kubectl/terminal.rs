//! A plugin that asks for a password, through a wrapped kubeconfig at a terminal.

use std::process::Command;

use credbroker_test_support::{Accepts, ApiServer, Broker, FakePlugin, Kubeconfig, Terminal};
use serde_json::json;

use super::{Kubectl, failure, newest_api_version};
use crate::programs;

#[test]
fn a_password_is_asked_once_in_the_terminal_of_kubectl() {
    let server = ApiServer::start(Accepts::Tokens);
    server.accept_token("token-1");
    let version = newest_api_version();
    let plugin = FakePlugin::script(&format!(
        r#"stty -echo || exit 5; printf 'Password: ' >&2; read password; stty echo; test "$password" = canary || exit 4
echo '{{"apiVersion": "{version}", "kind": "ExecCredential", "status": {{"token": "token-'$run'"}}}}'"#
    ));
    let home = Kubectl::new();
    let (original, wrapped) = (home.dir().join("config"), home.dir().join("wrapped"));
    let mut stanza = plugin.exec_stanza();
    (stanza["apiVersion"], stanza["interactiveMode"]) = (json!(version), json!("Always"));
    Kubeconfig::for_server(&server, "prod", &stanza).write(&original);
    let broker = Broker::builder(programs::broker()).kubeconfig(&original).start();
    let mut wrap = Command::new(programs::broker());
    wrap.args(["kubeconfig", "wrap", "--kubeconfig"]).arg(&original).arg("-o").arg(&wrapped).env_clear();
    wrap.env("HOME", home.dir()).env("PATH", programs::path_with_shim());
    assert!(wrap.env("CREDBROKER_SOCKET", broker.socket()).output().unwrap().status.success());

    let kubectl = Kubectl::new().env("CREDBROKER_SOCKET", broker.socket());
    let complaint = failure(&kubectl.run(&wrapped, &["get", "pods"]));
    assert!(complaint.contains("INTERACTION_REQUIRED"), "{complaint}");
    let socket = broker.socket();
    for run in 1..=2 {
        let variables = [
            ("KUBECONFIG", wrapped.as_os_str()),
            ("CREDBROKER_SOCKET", socket.as_os_str()),
            ("HOME", home.dir().as_os_str()),
            ("TERM", "xterm".as_ref()),
        ];
        let mut terminal = Terminal::start("kubectl", ["get", "pods"], variables);
        if run == 1 {
            terminal.wait_for("Password: ");
            terminal.types("canary\n");
        }
        let (status, stdout, shown) = terminal.end();
        assert!(status.success() && stdout.contains("web-0"), "{shown}");
        assert!(!shown.contains("canary") && shown.contains("Password") == (run == 1), "{shown}");
    }
    assert_eq!(plugin.runs(), 1);
}
