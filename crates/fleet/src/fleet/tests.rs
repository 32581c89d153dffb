mod concurrent;
mod rebase;

use serde_json::{Value, json};

use super::*;
use credbroker_plugin::{Command, EnvPolicy, ProfileSourced, Provider, testing::provider};

/// Two providers that accept all additions. The second serves profiles that do not list the first.
fn fleet() -> Fleet {
    let sourced = Some(ProfileSourced { args: true, env: EnvPolicy::Replace });
    let all = ["p", "q"]
        .map(|name| Provider { profile_sourced: sourced, ..provider(name, Command::Name("plugin".into())) });
    let user = Provider { profile_sourced: None, ..provider("user", Command::Name("plugin".into())) };
    Fleet::new(Arc::new(Providers::new(all.into_iter().chain([user]))), EndpointRules::default())
}

fn named(name: &str) -> ProfileName {
    let (namespace, name) = name.split_once('/').unwrap_or(("fleet", name));
    ProfileName::new(namespace, name)
}

fn profile(name: &str, status: &Value) -> ClusterProfile {
    ClusterProfile::read(named(name), &Value::Null, status)
}

fn at(name: &str, server: &str) -> ClusterProfile {
    profile(name, &json!({"accessProviders": [{"name": "p", "cluster": {"server": server}}]}))
}

fn target(fleet: &Fleet, name: &str) -> Arc<Target> {
    Arc::clone(fleet.get(&named(name)).unwrap().outcome.as_ref().unwrap())
}

fn names(known: &[Arc<KnownProfile>]) -> Vec<String> {
    known.iter().map(|known| known.profile.name.to_string()).collect()
}

fn names_at(fleet: &Fleet, provider: &str, server: &str) -> Vec<String> {
    fleet.at(provider, server).iter().map(|target| target.profile.to_string()).collect()
}

#[test]
fn a_profile_is_known_with_what_it_leads_to() {
    let fleet = fleet();
    let status = json!({
        "version": {"kubernetes": "v1"},
        "accessProviders": [{"name": "z"}],
        "credentialProviders": [{"name": "q", "cluster": {"server": "https://paris"}}],
    });
    fleet.apply(profile("paris", &status));
    let known = fleet.get(&named("paris")).unwrap();
    assert_eq!(known.profile.kubernetes_version, "v1");
    let skipped: Vec<_> = known.skipped.iter().map(|skipped| &*skipped.name).collect();
    assert_eq!(
        (skipped, known.warnings.len(), known.revision),
        (vec!["p", "z"], 1, 1),
        "no user of a kubeconfig"
    );
    let target = target(&fleet, "paris");
    assert_eq!((target.profile.to_string(), &*target.provider.name), ("fleet/paris".to_owned(), "q"));
    assert_eq!(target.endpoint.server, "https://paris");
    assert!(fleet.get(&named("other/paris")).is_none());
}

#[test]
fn a_profile_that_leads_nowhere_is_known_with_the_reason() {
    let fleet = fleet();
    assert_eq!(fleet.apply(at("paris", "")), ProfileChange::Shown);
    let known = fleet.get(&named("paris")).unwrap();
    assert!(known.outcome.as_ref().unwrap_err().to_string().contains("is empty"));
    assert_eq!(names(&fleet.list(None)), ["fleet/paris"]);
    assert!(fleet.at("p", "").is_empty() && fleet.read().by_server.is_empty());
}

#[test]
fn only_what_leads_elsewhere_moves() {
    let fleet = fleet();
    let with = |cluster: Value, version: &str| {
        let entry = json!({"name": "p", "cluster": cluster});
        profile("paris", &json!({"version": {"kubernetes": version}, "accessProviders": [entry]}))
    };
    let extended = |name: &str, value: Value| {
        let name = format!("clusterprofiles.multicluster.x-k8s.io/exec/{name}");
        json!({"server": "https://a", "extensions": [{"name": name, "extension": value}]})
    };
    let steps = [
        (with(json!({"server": "https://a"}), "1"), ProfileChange::Shown, "it is new"),
        (with(json!({"server": "https://a"}), "1"), ProfileChange::None, "it is the same"),
        (with(json!({"server": "https://a"}), "2"), ProfileChange::Shown, "a newer version"),
        (
            with(json!({"server": "https://a", "unknown": 1}), "2"),
            ProfileChange::Shown,
            "nothing that is used",
        ),
        (with(json!({"server": "https://b"}), "2"), ProfileChange::Moved, "another server"),
        (
            with(json!({"server": "https://b", "tls-server-name": "b"}), "2"),
            ProfileChange::Moved,
            "another TLS name",
        ),
        (with(extended("additional-args", json!(["--x"])), "2"), ProfileChange::Moved, "another argument"),
        (
            with(extended("additional-args", json!({"args": ["--x"]})), "2"),
            ProfileChange::Shown,
            "the same written otherwise",
        ),
        (with(extended("additional-envs", json!({"A": "1"})), "2"), ProfileChange::Moved, "another variable"),
        (with(json!({"server": ""}), "2"), ProfileChange::Moved, "nowhere"),
        (with(json!({"server": "http://a"}), "2"), ProfileChange::Shown, "nowhere still"),
        (
            with(json!({"server": "https://b"}), "2"),
            ProfileChange::Shown,
            "somewhere again, and nothing is held",
        ),
        (at("paris", "https://b"), ProfileChange::Shown, "no version"),
    ];
    for (profile, expected, what) in steps {
        assert_eq!(fleet.apply(profile), expected, "{what}");
    }
    let other = json!({"accessProviders": [{"name": "q", "cluster": {"server": "https://b"}}]});
    assert_eq!(fleet.apply(profile("paris", &other)), ProfileChange::Moved, "another provider");
}

#[test]
fn every_change_has_a_number_and_what_changes_nothing_has_none() {
    let fleet = fleet();
    let mut revisions = fleet.revisions();
    let mut next = || {
        let changed = revisions.has_changed().unwrap();
        (changed, *revisions.borrow_and_update())
    };
    assert_eq!(next(), (false, 0));
    fleet.apply(at("paris", "https://a"));
    assert_eq!(next(), (true, 1));
    fleet.apply(at("paris", "https://a"));
    assert_eq!(next(), (false, 1));
    fleet.apply(at("tokyo", "https://a"));
    assert_eq!((next(), fleet.get(&named("tokyo")).unwrap().revision), ((true, 2), 2));
    assert!(fleet.remove(&named("paris")));
    assert_eq!(next(), (true, 3));
    assert!(!fleet.remove(&named("paris")));
    assert_eq!(next(), (false, 3));
}

#[test]
fn profiles_are_listed_by_name_and_those_of_one_namespace_alone() {
    let fleet = fleet();
    for name in ["b/a", "a/z", "a-b/c", "a/b"] {
        fleet.apply(at(name, "https://a"));
    }
    assert_eq!(names(&fleet.list(None)), ["a/b", "a/z", "a-b/c", "b/a"]);
    assert_eq!(names(&fleet.list(Some("a"))), ["a/b", "a/z"]);
    assert_eq!(names(&fleet.list(Some(""))), [""; 0]);
    fleet.remove(&named("a/b"));
    assert_eq!(names(&fleet.list(Some("a"))), ["a/z"]);
}

#[test]
fn a_cluster_is_found_by_its_server_and_provider() {
    let fleet = fleet();
    for (name, server) in [("b", "https://one/"), ("a", "https://one"), ("c", "https://two")] {
        fleet.apply(at(name, server));
    }
    let other = json!({"accessProviders": [{"name": "q", "cluster": {"server": "https://one"}}]});
    fleet.apply(profile("d", &other));
    for server in ["https://one", "https://one/", "https://one//"] {
        assert_eq!(names_at(&fleet, "p", server), ["fleet/a", "fleet/b"]);
    }
    assert_eq!(names_at(&fleet, "q", "https://one"), ["fleet/d"]);
    assert_eq!(names_at(&fleet, "p", "https://none"), [""; 0]);
    fleet.apply(at("a", "https://two"));
    assert_eq!(names_at(&fleet, "p", "https://one"), ["fleet/b"]);
    assert_eq!(names_at(&fleet, "p", "https://two"), ["fleet/a", "fleet/c"]);
    fleet.apply(at("b", ""));
    assert_eq!(names_at(&fleet, "p", "https://one"), [""; 0]);
    for name in ["a", "b", "c", "d"] {
        fleet.remove(&named(name));
    }
    assert!(fleet.read().by_server.is_empty(), "nothing is left behind");
}

#[test]
fn a_follower_is_notified_of_changes_and_of_the_end() {
    let fleet = fleet();
    fleet.apply(at("paris", "https://a"));
    let mut follower = fleet.follow(&target(&fleet, "paris"));
    assert!(!follower.has_changed().unwrap());
    fleet.apply(at("tokyo", "https://b"));
    assert!(!follower.has_changed().unwrap(), "another profile");
    fleet.apply(at("paris", "https://a"));
    assert!(!follower.has_changed().unwrap(), "nothing changed");
    fleet.apply(at("paris", "https://b"));
    assert!(follower.has_changed().unwrap());
    assert_eq!(*follower.borrow_and_update(), fleet.get(&named("paris")).unwrap().revision);
    fleet.remove(&named("paris"));
    assert!(follower.has_changed().is_err(), "closed");
}

#[test]
fn a_change_before_the_follower_is_notified_at_once() {
    let fleet = fleet();
    fleet.apply(at("paris", "https://a"));
    let before = target(&fleet, "paris");
    fleet.apply(at("paris", "https://b"));
    assert!(fleet.follow(&before).has_changed().unwrap());
    assert!(!fleet.follow(&target(&fleet, "paris")).has_changed().unwrap());
    fleet.apply(at("paris", ""));
    assert!(fleet.follow(&before).has_changed().unwrap(), "it leads nowhere");
    fleet.remove(&named("paris"));
    assert!(fleet.follow(&before).has_changed().is_err(), "it is gone");
    fleet.apply(at("paris", "https://c"));
    assert!(fleet.follow(&before).has_changed().unwrap(), "another of the same name");
}

#[test]
fn two_targets_are_the_same_if_run_place_and_profile_are() {
    let fleet = fleet();
    fleet.apply(at("a", "https://one"));
    fleet.apply(at("b", "https://one"));
    fleet.apply(at("c", "https://two"));
    let first = target(&fleet, "a");
    let shown = json!({"version": {"kubernetes": "2"}, "accessProviders": [{"name": "p", "cluster": {"server": "https://one"}}]});
    fleet.apply(profile("a", &shown));
    let [a, b, c] = ["a", "b", "c"].map(|name| target(&fleet, name));
    assert!(a.is_same(&first) && !Arc::ptr_eq(&a, &first));
    assert!(!a.is_same(&b) && a.is_same_run(&b));
    assert!(!a.is_same(&c) && !a.is_same_run(&c));
    for extension in ["args", "envs"] {
        let name = format!("clusterprofiles.multicluster.x-k8s.io/exec/additional-{extension}");
        let value = if extension == "args" { json!(["--x"]) } else { json!({"A": "1"}) };
        let cluster = json!({"server": "https://one", "extensions": [{"name": name, "extension": value}]});
        fleet.apply(profile("d", &json!({"accessProviders": [{"name": "p", "cluster": cluster}]})));
        assert!(!a.is_same_run(&target(&fleet, "d")), "{extension}");
    }
}

#[test]
fn a_change_of_the_hub_state_is_notified() {
    let fleet = fleet();
    let mut states = fleet.hub_states();
    assert_eq!(fleet.hub(), HubState::default());
    for (synced, problem) in [(false, Some("refused")), (true, None), (true, Some("gone"))] {
        let problem = problem.map(Into::into);
        fleet.set_hub(synced, problem.clone());
        assert!(states.has_changed().unwrap());
        let state = states.borrow_and_update().clone();
        assert_eq!((state.synced, &state.problem), (synced, &problem));
        assert_eq!(fleet.hub(), state);
        fleet.set_hub(synced, problem);
        assert!(!states.has_changed().unwrap(), "the same again");
    }
}

#[test]
fn the_time_changes_when_the_hub_is_read_fails_or_recovers() {
    let mut hub = HubState::default();
    let mut since = |synced, problem: &str, second| {
        let problem = Some(problem).filter(|problem| !problem.is_empty()).map(Into::into);
        hub.set(synced, problem, SystemTime::UNIX_EPOCH + Duration::from_secs(second));
        hub.since.map(|at| at.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs())
    };
    assert_eq!(since(false, "", 1), None, "the hub has not answered yet");
    assert_eq!(since(false, "refused", 2), Some(2));
    assert_eq!(since(false, "reset", 3), Some(2), "it still fails");
    assert_eq!(since(true, "", 4), Some(4));
    assert_eq!(since(true, "", 5), Some(4));
    assert_eq!(since(true, "reset", 6), Some(6));
}

#[test]
fn of_two_providers_of_one_name_the_last_one_serves_profiles_too() {
    let of = |args: &[&str], profile_sourced| Provider {
        args: args.iter().map(|arg| (*arg).to_owned()).collect(),
        profile_sourced,
        ..provider("p", Command::Name("plugin".into()))
    };
    let any = Some(ProfileSourced::default());
    let served = |all: [Provider; 2]| {
        let providers = Providers::new(all);
        providers.access.iter().map(|provider| provider.args.concat()).collect::<Vec<_>>()
    };
    assert_eq!(served([of(&["first"], any), of(&["last"], any)]), ["last"]);
    assert_eq!(served([of(&["first"], any), of(&["last"], None)]), [""; 0]);
}
