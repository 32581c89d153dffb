//! `healthcheck` and `logout` for a cluster.

use credbroker_test_support::{Accepts, ApiServer, Broker, FakePlugin, Kubeconfig, private_directory};
use serde_json::json;

use super::{PROGRAM, run, stderr, stdout};
use crate::harness::provider;

#[test]
fn a_cluster_is_checked_and_logged_out_of_by_its_name() {
    let hub = ApiServer::start(Accepts::Tokens);
    hub.accept_token("hub");
    for (name, provider) in [("paris", "cloud"), ("rome", "failing"), ("oslo", "none")] {
        let access = json!([{"name": provider, "cluster": {"server": format!("https://{name}:6443")}}]);
        let body = json!({"spec": {"clusterManager": {"name": "m"}}, "status": {"accessProviders": access}});
        hub.apply_cluster_profile("fleet", name, body);
    }
    let directory = private_directory();
    let kubeconfig = Kubeconfig::new().cluster_of(&hub, "hub").user("hub", &json!({"token": "hub"}));
    kubeconfig.context("hub", "hub", "hub").write(directory.path().join("hub"));
    let plugin = FakePlugin::builder().token("t").expires_in(3600).build();
    let failing = FakePlugin::builder().stderr("no session").exit_code(3).build();
    let config = json!({
        "apiVersion": "credbroker.io/v1alpha1",
        "kind": "BrokerConfig",
        "providers": [provider("cloud", &plugin), provider("failing", &failing)],
        "clusterProfiles": {"kubeconfig": directory.path().join("hub")},
    });
    let broker = Broker::builder(PROGRAM).config(&config.to_string()).start();
    let check = |cluster: &str| {
        let output = run(&broker, &["healthcheck", "--cluster-profile", cluster]);
        (output.status.code(), stdout(&output))
    };
    // A request for a cluster waits for the first list of the hub.
    assert!(run(&broker, &["get", "--cluster-profile", "fleet/paris"]).status.success());
    assert!(!run(&broker, &["get", "--cluster-profile", "fleet/rome"]).status.success());
    assert_eq!(check("fleet/paris"), (Some(0), "ok\n".to_owned()));
    for cluster in ["fleet/rome", "fleet/oslo", "fleet/unknown", "other/paris"] {
        let expected = (Some(1), "not ready; `credbroker clusters` has the reasons\n".to_owned());
        assert_eq!(check(cluster), expected, "{cluster}");
    }
    let explained = stdout(&run(&broker, &["explain", "--cluster-profile", "fleet/paris"]));
    assert!(explained.contains("(fleet/paris)") && explained.contains("cluster server"), "{explained}");

    let output = run(&broker, &["logout", "--cluster-profile", "fleet/paris"]);
    let text = stdout(&output);
    assert!(text.starts_with("evicted 1 credential of cluster fleet/paris\n"), "{output:?}");
    assert!(text.contains("may keep its own login"), "the plugin is that of the cluster: {text}");
    assert_eq!(check("fleet/paris"), (Some(0), "ok\n".to_owned()), "the next request runs the plugin");
    let both = run(&broker, &["logout", "cloud", "--cluster-profile", "fleet/paris"]);
    assert_eq!(both.status.code(), Some(2), "{}", stderr(&both));
}
