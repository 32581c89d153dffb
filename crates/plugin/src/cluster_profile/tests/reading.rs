//! Reading an object.

use super::*;

#[test]
fn all_fields_that_are_shown_are_read() {
    let spec = json!({"displayName": "Paris", "clusterManager": {"name": "ocm"}});
    let status = json!({
        "version": {"kubernetes": "v1.35.0"},
        "properties": [{"name": "b", "value": "2"}, {"name": "a", "value": "1"}],
        "accessProviders": [entry("p")],
    });
    let read = ClusterProfile::read(ProfileName::new("fleet", "paris"), &spec, &status);
    assert_eq!(read.name.to_string(), "fleet/paris");
    assert_eq!((&*read.display_name, &*read.cluster_manager), ("Paris", "ocm"));
    assert_eq!(read.kubernetes_version, "v1.35.0");
    assert_eq!(read.properties, pairs(&[("b", "2"), ("a", "1")]), "in the profile's order");
    assert_eq!(read.access.unwrap().len(), 1);
}

#[test]
fn fields_that_are_only_shown_may_be_missing_or_malformed() {
    let odd = [
        (Value::Null, Value::Null),
        (json!({"displayName": 5, "clusterManager": "ocm"}), json!({"version": [], "properties": {}})),
        (
            json!([]),
            json!({"properties": [null, 1, {"value": "no name"}, {"name": 1}], "accessProviders": []}),
        ),
    ];
    for (spec, status) in odd {
        let read = ClusterProfile::read(ProfileName::new("fleet", "paris"), &spec, &status);
        let shown = [read.display_name, read.cluster_manager, read.kubernetes_version].concat();
        assert_eq!((&*shown, read.properties, read.access), ("", vec![], Ok(vec![])));
    }
    let read = profile(&json!({"properties": [{"name": "a"}, {"name": "b", "value": null}]}));
    assert_eq!(read.properties, pairs(&[("a", ""), ("b", "")]));
}

#[test]
fn lists_of_another_shape_are_refused_with_their_place() {
    let table = [
        json!({"accessProviders": {}}),
        json!({"accessProviders": "p"}),
        json!({"accessProviders": [entry("p"), null]}),
        json!({"accessProviders": [entry("p"), ["q"]]}),
        json!({"accessProviders": [{"cluster": {"server": "https://x"}}]}),
        json!({"accessProviders": [{"name": 5}]}),
        json!({"accessProviders": [entry("p")], "credentialProviders": [entry("q"), 7]}),
        json!({"credentialProviders": true}),
        json!({"accessProviders": [entry("p"), entry("q"), entry("p")]}),
        json!({"credentialProviders": [entry("q"), entry("q")]}),
    ];
    insta::assert_snapshot!(refusals(table.iter().map(profile), &configured(&["p"])), @r"
    status.accessProviders must be a list
    status.accessProviders must be a list
    status.accessProviders[1] must be a map
    status.accessProviders[1] must be a map
    status.accessProviders[0] must be a map with a `name`
    status.accessProviders[0] must be a map with a `name`
    status.credentialProviders[1] must be a map
    status.credentialProviders must be a list
    status.accessProviders names provider `p` twice, so the endpoint is ambiguous
    status.credentialProviders names provider `q` twice, so the endpoint is ambiguous
    ");
}

#[test]
fn a_status_that_is_not_a_map_lists_nothing() {
    for status in [Value::Null, json!([]), json!("status"), json!(1)] {
        assert_eq!(profile(&status).access, Ok(vec![]), "{status}");
    }
}

#[test]
fn an_entry_without_a_name_is_skipped() {
    let profile = profile(&json!({"accessProviders": [entry(""), entry("p"), entry("")]}));
    let Resolution { outcome, skipped, .. } =
        resolve(&profile, &configured(&["p"]), EndpointRules::default());
    assert_eq!((&*outcome.unwrap().endpoint.server, skipped), ("https://p:6443", vec![]));
}

#[test]
fn names_sort_by_namespace_and_then_by_name() {
    let mut names =
        [("b", "a"), ("a-b", "z"), ("a", "z"), ("a", "b")].map(|(ns, name)| ProfileName::new(ns, name));
    names.sort();
    assert_eq!(format!("{names:?}"), "[a/b, a/z, a-b/z, b/a]");
}
