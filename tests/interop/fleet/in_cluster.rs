//! A broker in a pod of the hub, which reads it as the pod's service account.

use std::{fs, path::Path, process::Command};

use credbroker_test_support::{Accepts, ApiServer, Broker, FakePlugin, private_directory};
use serde_json::json;

use super::{cloud, cluster_of, cluster_variable, profile, until};
use crate::programs::broker;

/// Starts the broker where a pod's files are in their place, and touches nothing of the machine.
fn in_pod(mounted: &Path) -> FakePlugin {
    let (mounted, broker) = (mounted.display(), broker().display());
    FakePlugin::script(&format!(
        r#"exec unshare --mount --propagation private sh -euc '
mount -t tmpfs tmpfs /var/run
mkdir -p /var/run/secrets/kubernetes.io/serviceaccount
mount --bind "$1" /var/run/secrets/kubernetes.io/serviceaccount
shift
exec "$@"' sh '{mounted}' '{broker}' "$@""#
    ))
}

/// As the kubelet does: at no moment is there half a file.
fn token_is(mounted: &Path, token: &str) {
    fs::write(mounted.join("new"), token).unwrap();
    fs::rename(mounted.join("new"), mounted.join("token")).unwrap();
}

#[test]
fn the_pods_service_account_reads_the_hub_and_its_next_token_goes_on() {
    let may = Command::new("unshare").args(["--mount", "--propagation", "private", "true"]).output();
    if !may.as_ref().is_ok_and(|output| output.status.success()) {
        println!("SKIPPED: a separate mount namespace is not permitted here: {may:?}");
        return;
    }
    let hub = ApiServer::start(Accepts::Tokens);
    hub.accept_token("first");
    let paris = cluster_of(&hub, &cluster_variable("paris"));
    hub.apply_cluster_profile("fleet", "paris", profile("cloud", &paris));
    let mounted = private_directory();
    token_is(mounted.path(), "first");
    fs::write(mounted.path().join("ca.crt"), hub.ca_pem()).unwrap();
    fs::write(mounted.path().join("namespace"), "credbroker").unwrap();
    let plugin = FakePlugin::builder().token("member").expires_in(3600).build();
    let config = json!({
        "apiVersion": "credbroker.io/v1alpha1",
        "kind": "BrokerConfig",
        "providers": cloud(&plugin),
        "clusterProfiles": {"kubeconfig": "InCluster", "namespaces": ["fleet"]},
    });
    let pod = in_pod(mounted.path());
    let broker = Broker::builder(pod.path())
        .config(&config.to_string())
        .env("KUBERNETES_SERVICE_HOST", hub.address().ip().to_string())
        .env("KUBERNETES_SERVICE_PORT", hub.address().port().to_string())
        .start();
    until(&broker, |fleet| fleet.len() == 1);
    assert_eq!(hub.seen_tokens(), ["first"]);
    assert!(hub.requests().iter().all(|request| request.path.contains("/namespaces/fleet/clusterprofiles")));

    hub.accept_token("second");
    token_is(mounted.path(), "second");
    hub.revoke_token("first");
    // The watch that is open would stay so until its end.
    hub.cut_connections();
    hub.apply_cluster_profile("fleet", "tokyo", profile("cloud", &paris));
    until(&broker, |fleet| fleet.len() == 2);
    assert_eq!(hub.seen_tokens(), ["first", "second"]);
    assert_eq!(plugin.runs(), 0);
}
