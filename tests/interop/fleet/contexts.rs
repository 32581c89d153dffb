//! Each context of `credbroker kubeconfig fleet` is one cluster, as one's own identity there.

use std::{fs, os::unix::fs::PermissionsExt as _};

use credbroker_test_support::{Accepts, ApiServer, Broker, FakePlugin};
use serde_json::json;

use super::{AGES, Hub, Walker, cloud, cluster_of, cluster_variable, until};
use crate::kubectl::{failure, stdout};

/// Prints the file `CLUSTER` beside it.
const ANSWER_OF_THE_CLUSTER: &str = r#"cat "$dir/$CLUSTER""#;

/// Three clusters with different authorities and identities; Tokyo's is a certificate.
struct Fleet {
    oslo: ApiServer,
    paris: ApiServer,
    tokyo: ApiServer,
    plugin: FakePlugin,
    key: String,
    broker: Broker,
    _hub: Hub,
}

impl Fleet {
    fn start() -> Self {
        let [oslo, paris] = [(); 2].map(|()| ApiServer::start(Accepts::Tokens));
        let tokyo = ApiServer::start(Accepts::Certificates);
        let plugin = FakePlugin::script(ANSWER_OF_THE_CLUSTER);
        let answers = |name: &str, status| {
            let answer = json!({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status});
            fs::write(plugin.dir().join(name), answer.to_string()).unwrap();
        };
        for (name, server) in [("oslo", &oslo), ("paris", &paris)] {
            let token = format!("token-of-{name}");
            server.accept_token(&token);
            answers(name, json!({"token": token}));
        }
        let (certificate, key) = tokyo.issue_client_certificate("tokyo", AGES * 60);
        answers("tokyo", json!({"clientCertificateData": certificate, "clientKeyData": key}));

        let hub = Hub::start();
        for (name, server) in [("oslo", &oslo), ("paris", &paris), ("tokyo", &tokyo)] {
            hub.profile(name, "cloud", &cluster_of(server, &cluster_variable(name)));
        }
        let broker = hub.broker(&cloud(&plugin));
        until(&broker, |fleet| fleet.len() == 3);
        Self { oslo, paris, tokyo, plugin, key, broker, _hub: hub }
    }
}

#[test]
fn each_context_reaches_its_own_cluster_as_its_own_identity_and_costs_one_run() {
    let fleet = Fleet::start();
    let walker = Walker::new();
    walker.write(&fleet.broker);
    for _ in 0..3 {
        for name in ["paris", "tokyo", "oslo"] {
            walker.reach(name);
        }
    }
    assert_eq!(fleet.plugin.runs(), 3);
    let none: Vec<String> = Vec::new();
    let own = |name: &str| (vec![format!("token-of-{name}")], none.clone());
    let seen = |server: &ApiServer| (server.seen_tokens(), server.seen_certificates());
    assert_eq!(seen(&fleet.oslo), own("oslo"));
    assert_eq!(seen(&fleet.paris), own("paris"));
    assert_eq!(seen(&fleet.tokyo), (none, vec!["tokyo".to_owned()]));
    for server in [&fleet.oslo, &fleet.paris, &fleet.tokyo] {
        assert!(server.requests().iter().all(|request| request.status == 200));
    }
}

#[test]
fn without_a_context_no_cluster_is_reached() {
    let fleet = Fleet::start();
    let walker = Walker::new();
    walker.write(&fleet.broker);
    failure(&walker.run(&["config", "current-context"]));
    failure(&walker.run(&["get", "pods"]));
    for server in [&fleet.oslo, &fleet.paris, &fleet.tokyo] {
        assert_eq!((server.connections(), server.requests()), (0, vec![]));
    }
    assert_eq!(fleet.plugin.runs(), 0);
}

#[test]
fn kubectl_lists_the_contexts_of_a_private_file_without_a_secret() {
    let fleet = Fleet::start();
    let walker = Walker::new();
    let said = walker.write(&fleet.broker);
    assert!(said.contains("3 contexts, none of them current"), "{said}");
    let mode = || fs::metadata(walker.kubeconfig()).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(), 0o600);
    let names = stdout(&walker.run(&["config", "get-contexts", "-o", "name"]));
    assert_eq!(names, "fleet/oslo\nfleet/paris\nfleet/tokyo\n");

    // Also once there are credentials to be written.
    for name in ["oslo", "paris", "tokyo"] {
        walker.reach(name);
    }
    fs::set_permissions(walker.kubeconfig(), fs::Permissions::from_mode(0o644)).unwrap();
    walker.write(&fleet.broker);
    assert_eq!(mode(), 0o600);
    let text = fs::read_to_string(walker.kubeconfig()).unwrap();
    for secret in
        ["token-of", "PRIVATE", "client-certificate", "client-key", fleet.key.lines().nth(1).unwrap()]
    {
        assert!(!text.contains(secret), "{secret}: {text}");
    }
}
