//! Tables of rules, peers and targets.

use std::sync::Arc;

use super::*;
use crate::{Globs, ProfileName};

const ALL: [Verb; 7] =
    [Verb::Get, Verb::Watch, Verb::Report, Verb::List, Verb::Login, Verb::Admin, Verb::Proxy];

fn principal(uid: u32) -> Principal {
    Principal { uid: Some(uid), gid: Some(uid), listener: "default".into(), ..Principal::default() }
}

fn owner(uid: u32) -> Principal {
    Principal { is_owner: true, ..principal(uid) }
}

fn grant(providers: &[&str], profiles: &[&str], verbs: &[Verb]) -> Grant {
    Grant {
        providers: Globs::new(providers),
        cluster_profiles: ProfileGlobs::new(profiles.iter().copied()),
        verbs: verbs.to_vec(),
    }
}

fn rule(peers: Peers, allow: Grant) -> Rule {
    Rule { name: "r".into(), peers, allow }
}

fn uids(uids: &[u32]) -> Peers {
    Peers { uids: uids.to_vec(), ..Peers::default() }
}

#[test]
fn without_a_rule_the_own_user_and_root_have_every_right_and_others_none() {
    let policy = Policy::new([]);
    for verb in ALL {
        assert!(policy.rights(&owner(1000)).allows(verb, CallTarget::Provider("p")));
        assert!(!policy.rights(&principal(1000)).allows(verb, CallTarget::Provider("p")));
    }
    assert!(!policy.rights(&owner(0)).is_limited());
    assert!(policy.rights(&principal(1001)).is_empty());
    let unmapped = Principal { uid: None, ..owner(65_534) };
    assert!(
        policy.rights(&unmapped).is_empty(),
        "an unmapped uid identifies no user, even if it is the broker's own"
    );
}

#[test]
fn with_a_rule_everyone_else_has_no_right_the_own_user_and_root_included() {
    let policy = Policy::new([rule(uids(&[1001]), grant(&["p"], &[], &[Verb::Get]))]);
    let rights = policy.rights(&principal(1001));
    assert!(rights.allows(Verb::Get, CallTarget::Provider("p")) && rights.is_limited());
    assert!(!rights.allows(Verb::Get, CallTarget::Provider("q")));
    assert!(!rights.allows(Verb::Watch, CallTarget::Provider("p")));
    assert!(rights.reach(CallTarget::Provider("p")) && !rights.reach(CallTarget::Provider("q")));
    for other in [owner(0), owner(1000), principal(1002)] {
        let rights = policy.rights(&other);
        assert!(rights.is_empty() && rights.is_limited(), "{other:?}");
        assert!(!rights.allows(Verb::Get, CallTarget::Provider("p")));
    }
}

#[test]
fn who_may_only_use_the_proxy_has_no_right_at_the_broker() {
    let policy = Policy::new([rule(uids(&[1001]), grant(&["p"], &[], &[Verb::Proxy]))]);
    let rights = policy.rights(&principal(1001));
    assert!(rights.allows(Verb::Proxy, CallTarget::Provider("p")) && rights.has(Verb::Proxy));
    assert!(rights.is_empty() && !rights.reach(CallTarget::Provider("p")));
    let policy = Policy::new([rule(uids(&[1001]), grant(&["p"], &[], &[Verb::Proxy, Verb::List]))]);
    assert!(!policy.rights(&principal(1001)).is_empty());
}

#[test]
fn a_peer_must_be_in_each_list_that_a_rule_has() {
    let kubectl = || Peers { executables: vec!["/usr/bin/kubectl".into()], ..Peers::default() };
    let table = [
        (Peers::default(), false),
        (uids(&[7]), true),
        (uids(&[6, 7]), true),
        (uids(&[8]), false),
        (Peers { gids: vec![70], ..Peers::default() }, true),
        (Peers { gids: vec![71], ..Peers::default() }, true),
        (Peers { gids: vec![72], ..Peers::default() }, false),
        (Peers { gids: vec![70], ..uids(&[8]) }, false),
        (Peers { gids: vec![72], ..uids(&[7]) }, false),
        (kubectl(), true),
        (Peers { executables: vec!["/usr/bin/helm".into()], ..uids(&[7]) }, false),
        (Peers { listeners: vec!["apps".into()], ..Peers::default() }, true),
        (Peers { listeners: vec!["admin".into()], ..uids(&[7]) }, false),
        (Peers { gids: vec![71], listeners: vec!["apps".into()], uids: vec![7], ..kubectl() }, true),
    ];
    let peer = Principal {
        uid: Some(7),
        gid: Some(70),
        process: Process::new(|| Facts {
            groups: [71].into(),
            executable: Some(Path::new("/usr/bin/kubectl").into()),
            ..Facts::default()
        }),
        listener: "apps".into(),
        is_owner: false,
    };
    for (peers, expected) in table {
        assert_eq!(peers.include(&peer), expected, "{peers:?}");
    }
}

#[test]
fn what_is_not_known_about_a_peer_is_in_no_list() {
    let elsewhere = principal(7);
    assert!(!Peers { gids: vec![71], ..Peers::default() }.include(&elsewhere));
    assert!(!Peers { executables: vec!["/bin/x".into()], ..Peers::default() }.include(&elsewhere));
    let unmapped = Principal { uid: None, ..principal(7) };
    for peers in [
        uids(&[65_534, u32::MAX]),
        Peers { gids: vec![7], ..Peers::default() },
        Peers { listeners: vec!["default".into()], ..Peers::default() },
    ] {
        assert!(!peers.include(&unmapped), "{peers:?}");
    }
    let no_group = Principal { gid: None, ..principal(7) };
    assert!(!Peers { gids: vec![65_534, u32::MAX], ..Peers::default() }.include(&no_group));
}

#[test]
fn a_grant_covers_what_its_lists_name() {
    let (paris, other) = (ProfileName::new("fleet", "paris"), ProfileName::new("other", "paris"));
    let both = grant(&["gke*"], &["fleet/*"], &[Verb::Get]);
    let providers = grant(&["gke"], &[], &[Verb::Get]);
    let profiles = grant(&[], &["fleet/p*"], &[Verb::Get]);
    let all = grant(&["*"], &["*"], &[Verb::Get]);
    let table = [
        (&both, CallTarget::Provider("gke-eu"), true),
        (&both, CallTarget::Provider("eks"), false),
        (&both, CallTarget::Profile(&paris, None), true),
        (&both, CallTarget::Profile(&paris, Some("gke")), true),
        (&both, CallTarget::Profile(&paris, Some("eks")), false),
        (&both, CallTarget::Profile(&other, Some("gke")), false),
        (&both, CallTarget::Through("gke", &paris), true),
        (&both, CallTarget::Through("gke", &other), false),
        (&both, CallTarget::Through("eks", &paris), false),
        (&providers, CallTarget::Provider("gke"), true),
        (&providers, CallTarget::Provider("gke2"), false),
        (&providers, CallTarget::Profile(&paris, Some("gke")), false),
        (&providers, CallTarget::Through("gke", &paris), true),
        (&profiles, CallTarget::Provider("gke"), false),
        (&profiles, CallTarget::Profile(&paris, Some("gke")), true),
        (&profiles, CallTarget::Profile(&other, Some("gke")), false),
        (&profiles, CallTarget::Through("gke", &paris), false),
        (&all, CallTarget::Provider("x"), true),
        (&all, CallTarget::Profile(&other, Some("x")), true),
        (&all, CallTarget::Through("x", &other), true),
    ];
    for (grant, target, expected) in table {
        assert_eq!(grant.covers(Verb::Get, target), expected, "{grant:?} {target:?}");
        assert!(!grant.covers(Verb::Admin, target), "{grant:?} {target:?}");
    }
}

#[test]
fn admin_includes_list_and_no_other_verb_includes_another() {
    for granted in ALL {
        let grant = grant(&[], &[], &[granted]);
        for verb in ALL {
            let expected = verb == granted || (granted == Verb::Admin && verb == Verb::List);
            assert_eq!(grant.includes(verb), expected, "{granted:?} {verb:?}");
        }
    }
}

#[test]
fn rules_add_up_and_the_first_that_allows_is_named() {
    let first = Rule { name: "first".into(), ..rule(uids(&[7]), grant(&["a"], &[], &[Verb::Get])) };
    let second = Rule { name: "second".into(), ..rule(uids(&[7, 8]), grant(&["*"], &[], &[Verb::Get])) };
    let policy = Policy::new([first, second]);
    let named = |uid, provider| {
        let rights = policy.rights(&principal(uid));
        rights.rule(Verb::Get, CallTarget::Provider(provider)).map(|rule| rule.name.to_string())
    };
    assert_eq!(named(7, "a").as_deref(), Some("first"));
    assert_eq!(named(7, "b").as_deref(), Some("second"));
    assert_eq!(named(8, "a").as_deref(), Some("second"));
    assert_eq!(named(9, "a"), None);
}

#[test]
fn equal_views_are_those_of_the_same_rules_of_one_policy() {
    let rules = || [rule(uids(&[7, 8]), grant(&["a"], &[], &[Verb::List]))];
    let (policy, reloaded) = (Policy::new(rules()), Policy::new(rules()));
    let view = |policy: &Policy, uid| policy.rights(&principal(uid)).view;
    assert_eq!(view(&policy, 7), view(&policy, 8));
    assert_ne!(view(&policy, 7), view(&policy, 9));
    assert_ne!(view(&policy, 7), view(&reloaded, 7));
    assert_eq!(Rights::all().view, 0);
    assert!(policy.is_of(&rules()) && !policy.is_of(&[]));
    assert!(!policy.is_of(&[rule(uids(&[7, 8]), grant(&["b"], &[], &[Verb::List]))]));
}

#[test]
fn a_permit_of_the_broker_itself_allows_everything_and_hides_nothing() {
    let own = Permit::default();
    assert!(own.allows(CallTarget::Provider("(hub)")) && !own.hides_unknown());
    let none = Arc::new(Policy::new([]).rights(&principal(7)));
    let permit = Permit::new(Arc::new(Rights::all()), Verb::Get);
    assert!(permit.allows(CallTarget::Provider("p")) && !permit.hides_unknown());
    assert!(!permit.with(Arc::clone(&none)).allows(CallTarget::Provider("p")));
    assert!(permit.with(none).hides_unknown());
}

#[test]
fn a_user_is_alone_with_a_provider_if_no_rule_gives_its_credential_to_another() {
    let (get, all) = (&[Verb::Get][..], &ALL[..]);
    let alone = |rules: &[Rule]| Policy::new(rules.iter().cloned()).is_alone(1000, "p");
    assert!(alone(&[]));
    for (peers, allow, expected) in [
        (uids(&[1000]), grant(&["p"], &[], all), true),
        (uids(&[1000, 0]), grant(&["*"], &[], all), true),
        (uids(&[1000, 1001]), grant(&["p"], &[], get), false),
        (uids(&[1001]), grant(&["*"], &[], &[Verb::Watch]), false),
        (uids(&[1001]), grant(&["p"], &[], &[Verb::Report]), false),
        (uids(&[1001]), grant(&["p"], &[], &[Verb::List, Verb::Admin]), true),
        (uids(&[1001]), grant(&["p"], &[], &[Verb::Proxy]), false),
        (uids(&[1001]), grant(&["q"], &[], all), true),
        (Peers { gids: vec![5], ..Peers::default() }, grant(&["p"], &[], get), false),
        (Peers { gids: vec![5], ..uids(&[1000]) }, grant(&["p"], &[], get), true),
    ] {
        assert_eq!(alone(&[rule(peers.clone(), allow.clone())]), expected, "{peers:?} {allow:?}");
        assert_eq!(alone(&[rule(uids(&[1000]), allow.clone()), rule(peers, allow)]), expected);
    }
}
