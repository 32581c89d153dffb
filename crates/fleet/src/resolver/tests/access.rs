//! What access rules do to a request.

use std::{sync::Arc, time::Duration};

use serde_json::json;
use tokio::time::Instant;

use super::{
    profiles::{apply, by_profile, named, paris, sent_paris, with_fleet, with_unread_fleet},
    *,
};
use credbroker_plugin::access::{Grant, Peers, Permit, Policy, Principal, ProfileGlobs, Rule, Verb};

/// A permit to get these providers and ClusterProfiles.
fn permit(providers: &[&str], profiles: &[&str]) -> Permit {
    let allow = Grant {
        providers: Globs::new(providers),
        cluster_profiles: ProfileGlobs::new(profiles.iter().copied()),
        verbs: [Verb::Get].into_iter().collect(),
    };
    let peers = Peers { uids: vec![7], ..Peers::default() };
    let policy = Policy::new([Rule { name: "r".into(), peers, allow }]);
    let principal = Principal { uid: Some(7), ..Principal::default() };
    Permit::new(Arc::new(policy.rights(&principal)), Verb::Get)
}

fn with(permit: &Permit, ask: CredentialRequest) -> CredentialRequest {
    CredentialRequest { permit: permit.clone(), ..ask }
}

fn of(name: &str) -> Provider {
    provider(name, Command::Name("x".into()))
}

#[test]
fn what_is_forbidden_and_what_does_not_exist_give_the_same_error() {
    let resolver = with_fleet([of("gke"), of("eks")]);
    apply(&resolver, "paris", "gke", &json!({"server": "https://paris"}));
    apply(&resolver, "tokyo", "eks", &json!({"server": "https://tokyo"}));
    let permit = permit(&["gke", "g-*"], &["fleet/*"]);
    let error = |ask| refused(&resolver, with(&permit, ask));
    assert!(resolver.resolve(with(&permit, ask("gke"))).is_ok());
    assert!(resolver.resolve(with(&permit, by_profile("paris"))).is_ok());
    let shape = |error: String, name: &str| error.replace(name, "NAME");
    // Forbidden; unknown and forbidden; unknown and allowed; unknown with a definition.
    let mut definition = ask("g-2");
    definition.source = Source::Provider(ProviderRef { name: "g-2".into(), definition: Some("12ab".into()) });
    let providers = [
        shape(error(ask("eks")), "eks"),
        shape(error(ask("none")), "none"),
        shape(error(ask("g-1")), "g-1"),
        shape(error(definition), "g-2"),
    ];
    assert!(providers.iter().all(|error| *error == providers[0]), "{providers:#?}");
    insta::assert_snapshot!(providers[0], @"provider `NAME` does not exist, or no access rule allows this process to use it; ask the operator of the broker for a rule");
    // Known, but of a provider that is forbidden; unknown; of a namespace that is forbidden.
    let elsewhere = CredentialRequest {
        source: Source::ClusterProfile(ProfileName::new("other", "rome")),
        ..CredentialRequest::default()
    };
    let profiles = [
        shape(error(by_profile("tokyo")), "fleet/tokyo"),
        shape(error(by_profile("rome")), "fleet/rome"),
        shape(error(elsewhere), "other/rome"),
    ];
    assert!(profiles.iter().all(|error| *error == profiles[0]), "{profiles:#?}");
    insta::assert_snapshot!(profiles[0], @"ClusterProfile `NAME` does not exist, or no access rule allows this process to use it; ask the operator of the broker for a rule");
}

#[test]
fn a_key_is_found_under_the_same_rules() {
    let resolver = resolver([of("gke"), of("eks")]);
    let permit = permit(&["gke"], &[]);
    assert!(resolver.key(&with(&permit, ask("gke"))).is_ok());
    assert!(resolver.key(&with(&permit, ask("eks"))).is_err());
    assert_eq!(
        resolver.key(&with(&permit, ask("gke"))).unwrap(),
        resolver.key(&ask("gke")).unwrap(),
        "the caller does not change the key"
    );
}

#[test]
fn a_profile_that_leads_nowhere_does_not_name_providers_that_the_caller_may_not_see() {
    let resolver = with_fleet([of("gke"), of("secret")]);
    apply(&resolver, "paris", "foreign", &json!({"server": "https://paris"}));
    let shown = |ask| chain(&resolver.resolve(ask).unwrap_err());
    let limited = shown(with(&permit(&["gke"], &["*"]), by_profile("paris")));
    assert!(limited.contains("foreign") && limited.contains("gke"), "{limited}");
    assert!(!limited.contains("secret"), "{limited}");
    assert!(shown(by_profile("paris")).contains("secret"));
}

#[test]
fn a_cluster_leads_only_to_profiles_that_the_caller_may_use() {
    let dir = tempfile::tempdir().unwrap();
    let matching = Provider {
        cluster_info: ClusterInfo::Match,
        provide_cluster_info: true,
        ..provider("p", plugin(dir.path()))
    };
    let resolver = with_fleet([matching]);
    apply(&resolver, "paris", "p", &paris());
    let sent = || CredentialRequest { cluster: Some(Box::new(sent_paris())), ..ask("p") };
    let found = |profiles: &[&str]| resolver.resolve(with(&permit(&["p"], profiles), sent()));
    assert_eq!(found(&[]).unwrap().target.as_ref().unwrap().profile, named("paris"));
    assert_eq!(found(&["fleet/p*"]).unwrap().target.as_ref().unwrap().profile, named("paris"));
    let hidden = found(&["fleet/tokyo"]).unwrap_err().to_string();
    resolver.fleet().unwrap().remove(&named("paris"));
    assert_eq!(hidden, found(&[]).unwrap_err().to_string(), "as if the profile did not exist");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_forbidden_does_not_wait_for_the_hub() {
    let matching = Provider { cluster_info: ClusterInfo::Match, ..of("p") };
    let resolver = with_unread_fleet([matching]);
    #[expect(clippy::disallowed_methods, reason = "tokio's paused clock is the test's clock")]
    let started = Instant::now();
    let none = permit(&["other"], &["other/*"]);
    for ask in [by_profile("paris"), CredentialRequest { cluster: Some(Box::new(sent_paris())), ..ask("p") }]
    {
        resolver.settled(&with(&none, ask)).await;
    }
    assert_eq!(started.elapsed(), Duration::ZERO);
}
