use std::time::Duration;

use tokio::time::sleep;

use super::*;
use crate::{
    hub::tests::{Setup, object, rule},
    resolver::{CredentialRequest, Source},
};

fn names(setup: &Setup) -> Vec<String> {
    setup.fleet.list(None).iter().map(|known| known.profile.name.to_string()).collect()
}

fn list<R: PluginRunner>(inventory: &Inventory<R>, namespace: Option<&str>, objects: &[&str]) {
    let names = objects.iter().filter_map(|name| inventory.apply(&object(name, "somewhere"), true).unwrap());
    inventory.end(namespace, &names.collect());
}

#[tokio::test]
async fn a_list_takes_away_what_it_does_not_name_when_it_ends_and_only_in_its_own_namespace() {
    let setup = Setup::new(Duration::ZERO, false);
    let inventory = setup.inventory(Vec::new());
    list(&inventory, Some("edge"), &["edge/a"]);
    list(&inventory, Some("fleet"), &["fleet/a", "fleet/b"]);
    assert_eq!(names(&setup), ["edge/a", "fleet/a", "fleet/b"]);
    inventory.apply(&object("fleet/b", "somewhere"), false).unwrap();
    assert_eq!(names(&setup).len(), 3, "a list that does not end takes nothing away");
    list(&inventory, Some("fleet"), &["fleet/b"]);
    assert_eq!(names(&setup), ["edge/a", "fleet/b"]);
}

#[tokio::test]
async fn what_goes_and_comes_back_while_a_list_runs_stays() {
    let setup = Setup::new(Duration::ZERO, false);
    let inventory = setup.inventory(Vec::new());
    for name in ["fleet/a", "fleet/b"] {
        inventory.apply(&object(name, "somewhere"), false).unwrap();
        inventory.delete(&object(name, "somewhere"));
    }
    inventory.apply(&object("fleet/a", "somewhere"), false).unwrap();
    inventory.end(None, &["a", "b"].map(|name| ProfileName::new("fleet", name)).into());
    assert_eq!(names(&setup), ["fleet/a"]);
}

#[tokio::test(start_paused = true)]
async fn a_move_forgets_the_credential_of_the_old_cluster_only() {
    let setup = Setup::new(Duration::ZERO, false);
    let inventory = setup.inventory(Vec::new());
    let ask = || CredentialRequest {
        source: Source::ClusterProfile(ProfileName::new("fleet", "a")),
        ..CredentialRequest::default()
    };
    let resolved = || setup.resolver.resolve(ask()).unwrap();
    // Requested after the fleet has changed, and before the cache has.
    inventory.apply(&object("fleet/a", "new"), false).unwrap();
    setup.cache.get(resolved(), &credbroker_cache::Request::default()).await.unwrap();
    inventory.apply(&object("fleet/a", "old"), false).unwrap();
    assert!(setup.cache.is_empty());
    setup.cache.get(resolved(), &credbroker_cache::Request::default()).await.unwrap();
    let old = setup.fleet.get(&ProfileName::new("fleet", "a")).unwrap();
    let moved = Setup::new(Duration::ZERO, false);
    let early = {
        let inventory = moved.inventory(Vec::new());
        inventory.apply(&object("fleet/a", "new"), false).unwrap();
        moved.resolver.resolve(ask()).unwrap()
    };
    let key = early.key;
    setup.cache.get(early, &credbroker_cache::Request::default()).await.unwrap();
    assert_eq!((setup.cache.len(), old.outcome.is_ok()), (2, true));
    inventory.apply(&object("fleet/a", "new"), false).unwrap();
    let held = setup.cache.list(&credbroker_cache::Selector::All, None, usize::MAX);
    assert_eq!(held.iter().map(|held| held.spec.key).collect::<Vec<_>>(), [key]);
    inventory.delete(&object("fleet/a", "new"));
    assert!(setup.cache.is_empty());
}

#[tokio::test(start_paused = true)]
async fn only_what_leads_elsewhere_is_fetched_ahead_again() {
    let setup = Setup::new(Duration::ZERO, false);
    let inventory = setup.inventory(vec![rule("*", 1, 1000)]);
    let settled = async |runs: usize, why: &str| {
        sleep(Duration::from_secs(10)).await;
        assert_eq!(setup.runner.ran().len(), runs, "{why}");
    };
    inventory.apply(&object("fleet/a", "old"), false).unwrap();
    settled(1, "it is new").await;
    setup.cache.evict(&credbroker_cache::Selector::All);
    let mut shown = object("fleet/a", "old");
    shown.data["spec"] = serde_json::json!({"displayName": "A"});
    inventory.apply(&shown, false).unwrap();
    inventory.apply(&shown, false).unwrap();
    settled(1, "only people look at that").await;
    inventory.apply(&object("fleet/a", "new"), false).unwrap();
    settled(2, "it moved").await;
    let mut unusable = object("fleet/a", "new");
    unusable.data["status"] = Value::Null;
    inventory.apply(&unusable, false).unwrap();
    settled(2, "it leads nowhere").await;
    inventory.apply(&object("fleet/a", "new"), false).unwrap();
    settled(3, "it leads somewhere again").await;
}

#[test]
fn what_is_known_has_a_limit_in_number_and_in_bytes() {
    let name = |number: usize| ProfileName::new("fleet", format!("c{number}"));
    let mut counts = Counts::default();
    for number in 0..PROFILES {
        counts.put(&name(number), TOTAL / PROFILES, 1).unwrap();
    }
    assert_eq!(counts.put(&name(PROFILES), 1, 1), Err(Excess::Profiles));
    assert_eq!(counts.put(&name(0), TOTAL, 1), Err(Excess::Total));
    counts.put(&name(0), 1, 1).unwrap();
    counts.put(&name(PROFILES), 1, 2).expect("a list may replace all that is known");
    counts.remove(&name(PROFILES));
    counts.remove(&name(1));
    counts.put(&name(PROFILES), 1, 1).unwrap();
    assert_eq!(counts.sizes.values().sum::<usize>(), counts.total);
}
