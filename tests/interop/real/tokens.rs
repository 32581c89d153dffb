//! Credentials that expire, and tokens that the API server's webhook rejects.

use std::time::{Duration, Instant};

use credbroker_test_support::{Broker, FakePlugin};
use serde_json::json;

use super::{ControlPlane, control_plane::whoami};
use crate::{kubectl::proxy::Proxy, programs::broker};

/// Longer than anything here takes, on any machine.
const PATIENCE: Duration = Duration::from_secs(120);

fn serve(plugin: &FakePlugin) -> Broker {
    Broker::builder(broker())
        .providers(&json!([{"name": "corp", "execConfig": plugin.exec_stanza()}]))
        .start()
}

/// Through two expiries, each command has a valid credential.
fn is_always_valid(plane: &ControlPlane, kind: &str) {
    let user = format!("{kind}-of-{}", plane.namespace);
    let plugin = plane.plugin(kind, &user, 15);
    let broker = serve(&plugin);
    let (kubectl, kubeconfig) = plane.kubectl("corp", &broker.socket());
    let (began, mut commands) = (Instant::now(), 0);
    while plugin.runs() < 4 {
        assert_eq!(whoami(&kubectl, &kubeconfig, "real"), user);
        commands += 1;
        assert!(began.elapsed() < PATIENCE, "{} runs", plugin.runs());
    }
    assert!(commands > plugin.runs(), "{commands} commands");
    assert_eq!(plane.verdicts(&format!("expired {user}")), 0);
}

#[test]
fn no_token_expires_in_use() {
    let Some(plane) = ControlPlane::shared() else { return };
    is_always_valid(&plane, "token");
}

#[test]
fn no_certificate_expires_in_use() {
    let Some(plane) = ControlPlane::shared() else { return };
    is_always_valid(&plane, "certificate");
}

#[test]
fn a_token_and_a_certificate_together_do_not_expire_in_use() {
    let Some(plane) = ControlPlane::shared() else { return };
    is_always_valid(&plane, "both");
}

#[test]
fn separate_commands_recover_from_a_revoked_token() {
    let Some(plane) = ControlPlane::shared() else { return };
    let user = format!("revoked-of-{}", plane.namespace);
    let plugin = plane.plugin("token", &user, 3600);
    let broker = serve(&plugin);
    let (kubectl, kubeconfig) = plane.kubectl("corp", &broker.socket());
    assert_eq!(whoami(&kubectl, &kubeconfig, "real"), user);
    plane.revoke_tokens_of(&user);
    let began = Instant::now();
    let recovered = || plugin.runs() > 1 && kubectl.run(&kubeconfig, &["get", "namespaces"]).status.success();
    // The API server remembers for ten seconds that it has accepted the token. Then the first commands fail, as they do
    // without a broker.
    while !recovered() {
        kubectl.run(&kubeconfig, &["get", "namespaces"]);
        assert!(began.elapsed() < PATIENCE, "{} runs", plugin.runs());
    }
    assert_eq!((whoami(&kubectl, &kubeconfig, "real"), plugin.runs()), (user, 2));
}

#[test]
fn a_client_that_keeps_running_recovers_from_a_revoked_token() {
    let Some(plane) = ControlPlane::shared() else { return };
    let user = format!("proxied-of-{}", plane.namespace);
    let plugin = plane.plugin("token", &user, 3600);
    let broker = serve(&plugin);
    let (kubectl, kubeconfig) = plane.kubectl("corp", &broker.socket());
    let proxy = Proxy::start(&kubectl, &kubeconfig);
    assert_eq!(proxy.version(), 200);
    plane.revoke_tokens_of(&user);
    let began = Instant::now();
    while proxy.version() == 200 {
        assert!(began.elapsed() < PATIENCE, "the token is still accepted");
    }
    while proxy.version() != 200 {
        assert!(began.elapsed() < PATIENCE, "{} runs", plugin.runs());
    }
    assert_eq!(plugin.runs(), 2);
}
