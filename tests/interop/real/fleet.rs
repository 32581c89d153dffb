//! A fleet in the real ClusterProfile resource.

use credbroker_proto::v1::cluster_state::Readiness;
use credbroker_test_support::{Broker, FakePlugin, private_directory};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{ControlPlane, control_plane::whoami};
use crate::{
    fleet::{Walker, until},
    programs::broker,
};

/// A broker that reads the ClusterProfiles of the test as `user`, and whose provider `cloud` runs `plugin` for them.
pub(super) fn follower(
    plane: &ControlPlane,
    user: &Value,
    plugin: &FakePlugin,
    more: &Value,
) -> (Broker, TempDir) {
    let home = private_directory();
    let kubeconfig = home.path().join("hub");
    plane.kubeconfig(&kubeconfig, user);
    let mut section = json!({"kubeconfig": kubeconfig, "namespaces": [plane.namespace]});
    section.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let config = json!({
        "apiVersion": "credbroker.io/v1alpha1",
        "kind": "BrokerConfig",
        "providers": [{
            "name": "cloud",
            "execConfig": plugin.exec_stanza(),
            "profileSourcedEnvVarsPolicy": "AppendIfNotExists",
            "profileEnv": ["CLUSTER"],
        }],
        "clusterProfiles": section,
    });
    (Broker::builder(broker()).config(&config.to_string()).start(), home)
}

/// A user who may read the hub, by a plugin.
pub(super) fn administrator(plugin: &FakePlugin) -> Value {
    json!({"exec": plugin.exec_stanza()})
}

#[test]
fn kubectl_reaches_the_clusters_of_real_profiles_as_they_change() {
    let Some(plane) = ControlPlane::shared() else { return };
    let (hub, plugin) = (plane.plugin("token", "hub", 3600), plane.plugin("token", "\"$CLUSTER\"", 3600));
    let (broker, _home) = follower(&plane, &administrator(&hub), &plugin, &json!({}));
    plane.create_profile("paris", &json!({}));
    until(&broker, |fleet| fleet.get("paris").is_some_and(|paris| paris.readiness() == Readiness::Unusable));
    plane.create_profile("oslo", &json!({}));
    plane.report("paris", "user-of-paris");
    plane.report("oslo", "user-of-oslo");
    until(&broker, |fleet| fleet.len() == 2 && fleet.values().all(|one| one.readiness() == Readiness::Idle));
    let walker = Walker::new();
    walker.write(&broker);
    let who =
        |name: &str| whoami(walker.kubectl(), &walker.kubeconfig(), &format!("{}/{name}", plane.namespace));
    assert_eq!((who("paris"), who("oslo")), ("user-of-paris".to_owned(), "user-of-oslo".to_owned()));
    assert_eq!((who("paris"), plugin.runs()), ("user-of-paris".to_owned(), 2));

    // Another identity at the same server: the old credential must not be used for it.
    plane.report("paris", "user-of-lyon");
    until(&broker, |fleet| fleet["paris"].readiness() == Readiness::Idle);
    assert_eq!(who("paris"), "user-of-lyon");
    plane.delete_profile("oslo");
    until(&broker, |fleet| fleet.len() == 1);
    assert_eq!((hub.runs(), plugin.runs()), (1, 3));
}

#[test]
fn a_profile_enters_and_leaves_the_label_selector() {
    let Some(plane) = ControlPlane::shared() else { return };
    let plugin = plane.plugin("token", "hub", 3600);
    plane.create_profile("paris", &json!({"tier": "prod"}));
    plane.create_profile("oslo", &json!({"tier": "test"}));
    plane.create_profile("rome", &json!({}));
    let selector = json!({"labelSelector": "tier in (prod, edge), !retired"});
    let (broker, _home) = follower(&plane, &administrator(&plugin), &plugin, &selector);
    let known = |names: &[&str]| until(&broker, |fleet| fleet.keys().eq(names));
    known(&["paris"]);
    plane.label_profile("rome", &json!({"tier": "edge"}));
    known(&["paris", "rome"]);
    plane.label_profile("paris", &json!({"retired": "yes"}));
    known(&["rome"]);
    plane.label_profile("rome", &json!({"tier": null}));
    known(&[]);
    plane.label_profile("oslo", &json!({"tier": "prod"}));
    known(&["oslo"]);
}

/// The broker reads five hundred at a time.
#[test]
fn more_profiles_than_fit_a_page_are_all_known() {
    let Some(plane) = ControlPlane::shared() else { return };
    let names: Vec<_> = (0..1100).map(|number| format!("c-{number:04}")).collect();
    plane.create_profiles(&names);
    let plugin = plane.plugin("token", "hub", 3600);
    let (broker, _home) = follower(&plane, &administrator(&plugin), &plugin, &json!({}));
    until(&broker, |fleet| fleet.keys().eq(&names));
}
