//! An API server that is away for a time.

use std::fs;

use serde_json::json;

use super::{
    ControlPlane,
    fleet::{administrator, follower},
};
use crate::fleet::{until, until_hub};

#[test]
fn what_changed_while_the_hub_was_away_is_known_afterwards() {
    let Some(plane) = ControlPlane::own() else { return };
    let hub = plane.plugin("token", "hub", 3600);
    for name in ["paris", "oslo"] {
        plane.create_profile(name, &json!({}));
    }
    let (broker, _home) = follower(&plane, &administrator(&hub), &hub, &json!({}));
    until(&broker, |fleet| fleet.keys().eq(["oslo", "paris"]));
    assert_eq!((plane.lists_by("hub"), hub.runs()), (1, 1));

    // Until it has another credential, the broker cannot see the changes.
    fs::write(plane.file("refuse-hub"), "").unwrap();
    plane.stop_api_server();
    plane.revoke_tokens_of("hub");
    until_hub(&broker, |hub, known| hub.failure.is_some() && known.len() == 2);
    plane.start_api_server();
    plane.delete_profile("paris");
    plane.create_profile("rome", &json!({}));
    fs::remove_file(plane.file("refuse-hub")).unwrap();
    until(&broker, |fleet| fleet.keys().eq(["oslo", "rome"]));
    assert!(hub.runs() > 1, "the token that was revoked is replaced");

    // The API server's history begins with its start, so the broker lists again.
    let lists = plane.lists_by("hub");
    plane.stop_api_server();
    until_hub(&broker, |hub, known| hub.failure.is_some() && known.len() == 2);
    plane.start_api_server();
    until_hub(&broker, |hub, _| hub.failure.is_none());
    assert!(plane.lists_by("hub") > lists);
    plane.delete_profile("oslo");
    until(&broker, |fleet| fleet.keys().eq(["rome"]));
}
