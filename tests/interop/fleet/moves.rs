//! A kubeconfig that is older than the fleet.

use credbroker_test_support::{Accepts, ApiServer, FakePlugin};

use serde_json::json;

use super::{Hub, Walker, cloud, cluster_of, cluster_variable, until};
use crate::kubectl::{failure, stdout};

/// Of every cluster: its name is the token.
fn named_token() -> FakePlugin {
    FakePlugin::builder().token_from_shell("$CLUSTER").expires_in(3600).build()
}

fn cluster(token: &str) -> ApiServer {
    let server = ApiServer::start(Accepts::Tokens);
    server.accept_token(token);
    server
}

#[test]
fn a_cluster_that_moved_is_refused_to_the_old_kubeconfig_and_reached_by_a_new_one() {
    let [old, new, tokyo] = ["paris", "paris", "tokyo"].map(cluster);
    let (hub, plugin, walker) = (Hub::start(), named_token(), Walker::new());
    hub.profile("paris", "cloud", &cluster_of(&old, &cluster_variable("paris")));
    hub.profile("tokyo", "cloud", &cluster_of(&tokyo, &cluster_variable("tokyo")));
    let broker = hub.broker(&cloud(&plugin));
    until(&broker, |fleet| fleet.len() == 2);
    walker.write(&broker);
    walker.reach("paris");

    hub.profile("paris", "cloud", &cluster_of(&new, &cluster_variable("paris")));
    until(&broker, |fleet| fleet["paris"].cluster.as_ref().is_some_and(|now| now.server == new.url()));
    old.forget_requests();
    let said = failure(&walker.pods("paris"));
    assert!(said.contains("CLUSTER_MISMATCH"), "{said}");
    assert!(said.contains("its server is different"), "{said}");
    assert!(said.contains("`credbroker kubeconfig fleet`"), "{said}");
    assert_eq!((old.requests(), new.requests(), plugin.runs()), (vec![], vec![], 1));
    walker.reach("tokyo");

    walker.write(&broker);
    walker.reach("paris");
    assert_eq!((old.requests(), new.seen_tokens()), (vec![], vec!["paris".to_owned()]));
    assert_eq!(plugin.runs(), 3);
}

/// The same address with another authority is another cluster: it may be an attacker.
#[test]
fn a_cluster_with_another_authority_is_refused_too() {
    let [paris, other] = ["paris", "paris"].map(cluster);
    let (hub, plugin, walker) = (Hub::start(), named_token(), Walker::new());
    let mut place = cluster_of(&paris, &cluster_variable("paris"));
    hub.profile("paris", "cloud", &place);
    let broker = hub.broker(&cloud(&plugin));
    until(&broker, |fleet| fleet.len() == 1);
    walker.write(&broker);

    place["certificate-authority-data"] = cluster_of(&other, &[])["certificate-authority-data"].clone();
    hub.profile("paris", "cloud", &place);
    let now = other.ca_pem().into_bytes();
    until(&broker, |fleet| {
        fleet["paris"]
            .cluster
            .as_ref()
            .is_some_and(|place| place.certificate_authority_data.as_deref() == Some(&now[..]))
    });
    let said = failure(&walker.pods("paris"));
    assert!(said.contains("CLUSTER_MISMATCH"), "{said}");
    assert!(said.contains("its certificate authorities are different"), "{said}");
    assert_eq!((paris.requests(), plugin.runs()), (vec![], 0));
}

#[test]
fn a_cluster_that_is_gone_is_named() {
    let [paris, tokyo] = ["paris", "tokyo"].map(cluster);
    let (hub, plugin, walker) = (Hub::start(), named_token(), Walker::new());
    hub.profile("paris", "cloud", &cluster_of(&paris, &cluster_variable("paris")));
    hub.profile("tokyo", "cloud", &cluster_of(&tokyo, &cluster_variable("tokyo")));
    let broker = hub.broker(&cloud(&plugin));
    until(&broker, |fleet| fleet.len() == 2);
    walker.write(&broker);
    walker.reach("paris");

    hub.server.delete_cluster_profile("fleet", "paris");
    until(&broker, |fleet| fleet.len() == 1);
    paris.forget_requests();
    let said = failure(&walker.pods("paris"));
    assert!(said.contains("UNKNOWN_CLUSTER_PROFILE") && said.contains("fleet/paris"), "{said}");
    assert_eq!((paris.requests(), plugin.runs()), (vec![], 1), "the credential that was held is not given");
    walker.reach("tokyo");

    walker.write(&broker);
    assert_eq!(stdout(&walker.run(&["config", "get-contexts", "-o", "name"])), "fleet/tokyo\n");
}

/// As every profile does: the object is made first, and its status is another request.
#[test]
fn a_cluster_without_a_status_is_not_an_error_and_is_reached_later() {
    let paris = cluster("paris");
    let (hub, plugin, walker) = (Hub::start(), named_token(), Walker::new());
    let empty = json!({"spec": {"clusterManager": {"name": "manager"}}});
    hub.server.apply_cluster_profile("fleet", "paris", empty);
    let broker = hub.broker(&cloud(&plugin));
    until(&broker, |fleet| fleet.len() == 1);
    hub.profile("paris", "cloud", &cluster_of(&paris, &cluster_variable("paris")));
    until(&broker, |fleet| fleet["paris"].provider.is_some());
    walker.write(&broker);
    walker.reach("paris");
    let (_, log) = broker.stop();
    assert!(log.contains("watching the hub") && !log.contains("WARN"), "{log}");
}
