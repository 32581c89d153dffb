//! Which provider serves a profile, and which do not.

use super::*;

fn skipped(profile: &ClusterProfile, configured: &[Arc<Provider>]) -> String {
    resolve(profile, configured, EndpointRules::default())
        .skipped
        .iter()
        .map(|skipped| format!("{}: {}", skipped.name, skipped.reason))
        .collect::<Vec<_>>()
        .join("\n")
}

#[test]
fn the_order_of_the_configuration_decides_and_that_of_the_profile_does_not() {
    let all = configured(&["a", "b", "c"]);
    for listed in [["c", "b"], ["b", "c"]] {
        let profile = profile(&json!({"accessProviders": listed.map(entry)}));
        let resolution = resolved(&profile, &all);
        assert_eq!((&*resolution.provider.name, &*resolution.endpoint.server), ("b", "https://b:6443"));
    }
    let profile = profile(&json!({"accessProviders": [entry("b"), entry("c")]}));
    assert_eq!(&*resolved(&profile, &configured(&["c", "b"])).provider.name, "c");
}

#[test]
fn every_other_name_has_a_reason() {
    let listed = ["z", "c", "b", "y"].map(entry);
    let profile =
        profile(&json!({"accessProviders": listed, "credentialProviders": [entry("x"), entry("c")]}));
    insta::assert_snapshot!(skipped(&profile, &configured(&["a", "b", "c", "d"])), @r"
    a: not listed by the profile
    c: comes after `b` in the configuration
    d: not listed by the profile
    z: not configured here
    y: not configured here
    x: not configured here
    ");
    insta::assert_snapshot!(skipped(&profile, &configured(&["a"])), @r"
    a: not listed by the profile
    z: not configured here
    c: not configured here
    b: not configured here
    y: not configured here
    x: not configured here
    ");
}

#[test]
fn skipped_providers_are_reported_when_the_chosen_one_is_unusable_too() {
    let profile = profile(&json!({"accessProviders": [{"name": "a"}, entry("b")]}));
    let all = configured(&["a", "b"]);
    insta::assert_snapshot!(refused(&profile, &all), @"access provider `a`: cluster.server is empty");
    assert_eq!(skipped(&profile, &all), "b: comes after `a` in the configuration");
}

#[test]
fn the_newer_list_wins_over_the_deprecated_one() {
    let older = json!({"name": "p", "cluster": {"server": "https://older"}});
    let newer = json!({"name": "p", "cluster": {"server": "https://newer"}});
    let profile = profile(&json!({"credentialProviders": [older], "accessProviders": [newer]}));
    let configured = configured(&["p"]);
    assert_eq!(resolved(&profile, &configured).endpoint.server, "https://newer");
    assert_eq!(warnings(&profile, &configured), [""; 0]);
    assert_eq!(skipped(&profile, &configured), "");
}

#[test]
fn the_configurations_order_counts_across_both_lists() {
    let profile = profile(&json!({"accessProviders": [entry("b")], "credentialProviders": [entry("a")]}));
    assert_eq!(&*resolved(&profile, &configured(&["a", "b"])).provider.name, "a");
}

#[test]
fn a_profile_with_the_deprecated_list_alone_resolves_with_a_warning() {
    for newer in [Value::Null, json!([]), json!([entry("other")])] {
        let status = json!({"accessProviders": newer, "credentialProviders": [entry("p")]});
        let (profile, configured) = (profile(&status), configured(&["p"]));
        assert_eq!(resolved(&profile, &configured).endpoint.server, "https://p:6443");
        assert_eq!(
            warnings(&profile, &configured),
            ["provider `p` is listed in status.credentialProviders, which is deprecated"]
        );
    }
}

#[test]
fn without_a_match_the_names_of_both_sides_are_reported() {
    let lists = |names: &[&str]| {
        let entries: Vec<_> = names.iter().map(|name| entry(name)).collect();
        profile(&json!({"accessProviders": entries}))
    };
    insta::assert_snapshot!(refused(&lists(&["eks", "aks"]), &configured(&["gke", "a"])), @"no provider matches: the profile lists eks, aks; the broker has gke, a");
    insta::assert_snapshot!(refused(&lists(&[]), &configured(&["gke"])), @"no provider matches: the profile lists none; the broker has gke");
    insta::assert_snapshot!(refused(&profile(&Value::Null), &[]), @"no provider matches: the profile lists none; the broker has none");
    insta::assert_snapshot!(refused(&lists(&["GKE", " gke", ""]), &configured(&["gke"])), @"no provider matches: the profile lists GKE,  gke; the broker has gke");
}

#[test]
fn names_of_a_profile_steer_no_terminal_and_fit_a_header() {
    let long: Vec<_> = (0..5000).map(|index| entry(&format!("\u{1b}[2J\n\u{202e}{index}"))).collect();
    let error = refused(&profile(&json!({"accessProviders": long})), &configured(&["p"]));
    assert!(!error.contains(char::is_control) && !error.contains('\u{202e}'), "{error}");
    assert!(error.len() < 4096 && error.contains("and 4980 more"), "{error}");
    let odd = "\u{1b}[2J\n".repeat(100_000);
    let one = profile(&json!({"accessProviders": [entry(&odd), entry(&odd)]}));
    let error = refused(&one, &configured(&["p"]));
    assert!(!error.contains(char::is_control) && error.len() < 4096, "{error}");
}

#[test]
#[expect(clippy::disallowed_methods, reason = "minutes or a second: no clock is too bad to tell")]
fn a_profile_that_lists_very_many_names_is_read_in_no_time() {
    let many =
        |of: &str| (0..30_000).map(|index| json!({"name": format!("{of}{index}")})).collect::<Vec<_>>();
    let extensions = many("e");
    let cluster = json!({"server": "https://paris", "extensions": extensions});
    let mut newer = many("a");
    newer.push(json!({"name": "p", "cluster": cluster}));
    let status = json!({"accessProviders": newer, "credentialProviders": many("c")});
    let started = std::time::Instant::now();
    assert_eq!(&*resolved(&profile(&status), &configured(&["p"])).endpoint.server, "https://paris");
    assert!(started.elapsed().as_secs() < 10, "{:?}", started.elapsed());
}
