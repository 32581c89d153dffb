//! The reserved extensions of a profile.

use super::*;

/// A provider that accepts all additions.
fn open() -> Vec<Arc<Provider>> {
    let sourced = ProfileSourced { args: true, env: EnvPolicy::Replace };
    let provider = provider("p", Command::Name("plugin".into()));
    vec![Arc::new(Provider { profile_sourced: Some(sourced), provide_cluster_info: true, ..provider })]
}

fn args(value: &Value) -> Vec<String> {
    resolved(&extended(&[(ARGS, value)]), &open()).provider.args.clone()
}

fn env(value: &Value) -> Vec<(String, String)> {
    resolved(&extended(&[(ENVS, value)]), &open()).provider.env.clone()
}

#[test]
fn the_config_reaches_the_plugin_as_it_is() {
    let texts = [
        r#"{"z":1,"a":{"y":[],"b":null},"m":"\u003c\u0000é\"/"}"#,
        "[1,-2,0.5,18446744073709551615,true]",
        r#""text""#,
        "0",
        "false",
        "{}",
        "[]",
    ];
    for text in texts {
        let value: Value = serde_json::from_str(text).unwrap();
        let config = resolved(&extended(&[(CONFIG, &value)]), &open()).endpoint.config.clone();
        assert_eq!(serde_json::from_slice::<Value>(&config).unwrap(), value, "{config:?}");
    }
    for profile in [extended(&[(CONFIG, &Value::Null)]), extended(&[])] {
        assert_eq!(resolved(&profile, &open()).endpoint.config, "");
    }
}

#[test]
fn the_config_is_the_same_bytes_each_time() {
    let text = r#"{"z":1,"a":2,"m":{"c":1,"b":2}}"#;
    let config = |text| {
        let value: Value = serde_json::from_str(text).unwrap();
        resolved(&extended(&[(CONFIG, &value)]), &open()).endpoint.config.clone()
    };
    assert_eq!(config(text), config(text));
}

#[test]
fn a_config_that_does_not_reach_the_plugin_is_warned_about() {
    let config = extended(&[(CONFIG, &json!({"audience": "x"}))]);
    let resolution = resolved(&config, &configured(&["p"]));
    insta::assert_snapshot!(warnings(&config, &configured(&["p"])).join("\n"), @"the `client.authentication.k8s.io/exec` extension does not reach the plugin: provider `p` has `provideClusterInfo: false`");
    assert_eq!(resolution.endpoint.config, r#"{"audience":"x"}"#, "it is part of the place all the same");
    assert_eq!(warnings(&config, &open()), [""; 0]);
    assert_eq!(warnings(&extended(&[(CONFIG, &Value::Null)]), &configured(&["p"])), [""; 0]);
}

#[test]
fn extensions_of_other_programs_are_ignored() {
    let profile = extended(&[
        ("example.com/args", &json!(["--evil"])),
        ("clusterprofiles.multicluster.x-k8s.io/exec/additional-args/v2", &json!(["--evil"])),
        ("ClusterProfiles.multicluster.x-k8s.io/exec/additional-args", &json!(["--evil"])),
        ("client.authentication.k8s.io/exec/", &json!(5)),
        ("", &json!(5)),
        (ARGS, &json!(["--good"])),
    ]);
    let resolution = resolved(&profile, &open());
    assert_eq!((&resolution.provider.args, &resolution.provider.env), (&texts(&["--good"]), &vec![]));
    assert_eq!(resolution.endpoint.config, "");
}

#[test]
fn two_extensions_of_one_name_are_refused() {
    for name in [ARGS, ENVS, CONFIG, "example.com/x"] {
        for open in [open(), configured(&["p"])] {
            let twice = extended(&[("first", &Value::Null), (name, &json!({})), (name, &json!({}))]);
            let expected = "access provider `p`: cluster.extensions[2] has the name of an earlier extension";
            assert_eq!(refused(&twice, &open), expected, "{name}");
        }
    }
}

#[test]
fn a_list_of_extensions_of_another_shape_is_refused_with_its_place() {
    let table = [
        json!({}),
        json!("x"),
        json!([null]),
        json!([{"name": "x"}, {"extension": {}}]),
        json!([{"name": 1}]),
        json!([["x"]]),
    ];
    let profiles = table.iter().map(|extensions| with_fields(&json!({"extensions": extensions})));
    insta::assert_snapshot!(refusals(profiles, &open()), @r"
    access provider `p`: cluster.extensions must be a list
    access provider `p`: cluster.extensions must be a list
    access provider `p`: cluster.extensions[0] must be a map with a `name`
    access provider `p`: cluster.extensions[1] must be a map with a `name`
    access provider `p`: cluster.extensions[0] must be a map with a `name`
    access provider `p`: cluster.extensions[0] must be a map with a `name`
    ");
}

#[test]
fn arguments_are_a_list_or_a_map_with_one() {
    let list = json!(["--a", "", "--a", "b c"]);
    let expected = texts(&["--a", "", "--a", "b c"]);
    assert_eq!((args(&list), args(&json!({"args": list}))), (expected.clone(), expected));
    for empty in [Value::Null, json!([]), json!({}), json!({"args": []}), json!({"args": null})] {
        assert_eq!(args(&empty), [""; 0], "{empty}");
    }
    let without_a_value =
        with_fields(&json!({"extensions": [{"name": ARGS}, {"name": ENVS}, {"name": CONFIG}]}));
    assert_eq!(resolved(&without_a_value, &open()).provider.args, [""; 0]);
}

#[test]
fn arguments_of_another_shape_are_refused() {
    let wrong = [
        json!("--a"),
        json!(1),
        json!(true),
        json!([1]),
        json!([true]),
        json!([null]),
        json!(["a", null]),
        json!([["a"]]),
        json!([{}]),
        json!({"args": "a"}),
        json!({"args": [1]}),
        json!({"args": {"0": "a"}}),
        json!({"arg": ["a"]}),
        json!({"args": ["a"], "other": 1}),
        json!({"0": "a"}),
    ];
    for value in wrong {
        let expected = "access provider `p`: cluster.extensions[0].extension must be a list of strings, or a map with such a list in `args`";
        assert_eq!(refused(&extended(&[(ARGS, &value)]), &open()), expected, "{value}");
    }
}

#[test]
fn variables_are_a_map_sorted_by_name() {
    assert_eq!(env(&json!({"B": "2", "A": "1", "C": ""})), pairs(&[("A", "1"), ("B", "2"), ("C", "")]));
    for empty in [Value::Null, json!({})] {
        assert_eq!(env(&empty), [], "{empty}");
    }
}

#[test]
fn variables_of_another_shape_are_refused() {
    let wrong = [
        json!("A=1"),
        json!(1),
        json!(true),
        json!([]),
        json!(["A=1"]),
        json!([{"name": "A", "value": "1"}]),
        json!({"A": 1}),
        json!({"A": null}),
        json!({"A": true}),
        json!({"A": "1", "B": ["2"]}),
        json!({"A": {}}),
    ];
    for value in wrong {
        let expected =
            "access provider `p`: cluster.extensions[0].extension must be a map from names to strings";
        assert_eq!(refused(&extended(&[(ENVS, &value)]), &open()), expected, "{value}");
    }
}
