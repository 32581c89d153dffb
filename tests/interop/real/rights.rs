//! What RBAC does not permit.

use credbroker_test_support::FakePlugin;
use serde_json::json;

use super::{
    ControlPlane,
    fleet::{administrator, follower},
};
use crate::fleet::{until, until_hub};

#[test]
fn a_hub_that_may_not_be_read_is_read_when_it_may() {
    let Some(plane) = ControlPlane::shared() else { return };
    plane.create_profile("paris", &json!({}));
    // In no group that has rights.
    let user = format!("reader-of-{}", plane.namespace);
    let token = json!({"user": user, "groups": []});
    std::fs::write(plane.file("tokens").join(&user), token.to_string()).unwrap();
    let unused = plane.plugin("token", "hub", 3600);
    let (broker, _home) = follower(&plane, &json!({"token": user}), &unused, &json!({}));
    until_hub(&broker, |hub, known| {
        let failure = hub.failure.as_ref();
        !hub.synced
            && known.is_empty()
            && failure.is_some_and(|failure| failure.message.contains("forbidden"))
    });

    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces";
    let role = json!({
        "metadata": {"name": "reader"},
        "rules": [{"apiGroups": ["multicluster.x-k8s.io"], "resources": ["clusterprofiles"], "verbs": ["list", "watch"]}],
    });
    plane.admin("POST", &format!("{rbac}/{}/roles", plane.namespace), &role);
    let binding = json!({
        "metadata": {"name": "reader"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    });
    plane.admin("POST", &format!("{rbac}/{}/rolebindings", plane.namespace), &binding);
    until(&broker, |fleet| fleet.keys().eq(["paris"]));
}

#[test]
fn a_plugin_that_issues_another_group_is_forbidden_and_not_rejected() {
    let Some(plane) = ControlPlane::shared() else { return };
    let (hub, user) = (plane.plugin("token", "hub", 3600), format!("guest-of-{}", plane.namespace));
    // 403 is an answer about rights: another credential of the same user would not help.
    let guest = json!({"user": user, "groups": ["guests"]});
    std::fs::write(plane.file("tokens").join(&user), guest.to_string()).unwrap();
    let plugin = FakePlugin::builder().token(&user).expires_in(3600).build();
    let (broker, _home) = follower(&plane, &administrator(&hub), &plugin, &json!({}));
    let (kubectl, kubeconfig) = plane.kubectl("cloud", &broker.socket());
    for _ in 0..3 {
        let refused = kubectl.run(&kubeconfig, &["get", "secrets"]);
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && said.contains("(Forbidden)") && said.contains(&user), "{said}");
    }
    assert_eq!(plugin.runs(), 1);
}
