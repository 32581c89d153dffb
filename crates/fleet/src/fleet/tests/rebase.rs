//! A newer configuration: known profiles are resolved against its providers.

use super::*;

fn providers(args: &[&str]) -> Arc<Providers> {
    let args = args.iter().map(|arg| (*arg).to_owned()).collect();
    Arc::new(Providers::new([Provider { args, ..provider("p", Command::Name("plugin".into())) }]))
}

fn paris(providers: Arc<Providers>) -> Fleet {
    let fleet = Fleet::new(providers, EndpointRules::default());
    fleet.apply(at("paris", "https://paris"));
    fleet
}

fn resolve_again(fleet: &Fleet) -> ProfileChange {
    fleet.resolve_again(&fleet.get(&named("paris")).unwrap())
}

#[test]
fn the_same_definitions_change_nothing_that_readers_see() {
    let fleet = paris(providers(&["a"]));
    let before = fleet.get(&named("paris")).unwrap();
    let mut changes = fleet.follow(&target(&fleet, "paris"));
    let newer = providers(&["a"]);
    assert!(fleet.rebase(Arc::clone(&newer), EndpointRules::default()));
    assert!(!fleet.rebase(Arc::clone(&newer), EndpointRules::default()), "the same providers");
    assert_eq!(resolve_again(&fleet), ProfileChange::None);
    let after = fleet.get(&named("paris")).unwrap();
    assert_eq!((after.revision, *fleet.revisions().borrow()), (before.revision, 1));
    assert!(!changes.has_changed().unwrap(), "watches stay");
    assert!(Arc::ptr_eq(&target(&fleet, "paris").provider, &newer.access[0]));
    assert!(changes.borrow_and_update().eq(&1));
}

#[test]
fn another_definition_moves_the_profile_and_none_makes_it_unusable() {
    let fleet = paris(providers(&["a"]));
    let old = target(&fleet, "paris");
    let changes = fleet.follow(&old);
    fleet.rebase(providers(&["b"]), EndpointRules::default());
    assert!(target(&fleet, "paris").is_same(&old), "only when it is resolved again");
    assert_eq!(resolve_again(&fleet), ProfileChange::Moved);
    assert!(changes.has_changed().unwrap());
    assert_eq!(target(&fleet, "paris").provider.args, ["b"]);
    assert_eq!(names_at(&fleet, "p", "https://paris"), ["fleet/paris"]);
    fleet.rebase(Arc::new(Providers::new([])), EndpointRules::default());
    assert_eq!(resolve_again(&fleet), ProfileChange::Moved);
    assert!(fleet.get(&named("paris")).unwrap().outcome.is_err());
    assert_eq!(names_at(&fleet, "p", "https://paris"), [""; 0]);
}

#[test]
fn a_profile_that_has_changed_meanwhile_or_is_gone_is_left_alone() {
    let fleet = paris(providers(&["a"]));
    let seen = fleet.get(&named("paris")).unwrap();
    fleet.rebase(providers(&["b"]), EndpointRules::default());
    fleet.apply(at("paris", "https://elsewhere"));
    assert_eq!(
        target(&fleet, "paris").provider.args,
        ["b"],
        "a profile that arrives is resolved against the new ones"
    );
    assert_eq!(fleet.resolve_again(&seen), ProfileChange::None);
    assert_eq!(target(&fleet, "paris").endpoint.server, "https://elsewhere");
    fleet.remove(&named("paris"));
    assert_eq!(fleet.resolve_again(&seen), ProfileChange::None);
    assert!(fleet.get(&named("paris")).is_none());
}
