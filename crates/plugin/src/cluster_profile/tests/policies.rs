//! Which additions of a profile reach the plugin.

use super::*;

/// A provider with one argument and two variables.
fn with(args: bool, env: EnvPolicy) -> Vec<Arc<Provider>> {
    vec![Arc::new(Provider {
        args: texts(&["--own"]),
        env: pairs(&[("TENANT", "own"), ("REGION", "own")]),
        profile_sourced: Some(ProfileSourced { args, env }),
        ..provider("p", Command::Name("plugin".into()))
    })]
}

pub(super) fn env_under(policy: EnvPolicy, env: &Value) -> Vec<(String, String)> {
    resolved(&extended(&[(ENVS, env)]), &with(false, policy)).provider.env.clone()
}

pub(super) fn refused_under(policy: EnvPolicy, env: &Value) -> String {
    refused(&extended(&[(ENVS, env)]), &with(false, policy))
}

#[test]
fn ignored_extensions_are_not_checked() {
    let malformed =
        [json!(5), json!([null]), json!({"LD_PRELOAD": "x"}), json!({"A": "\n"}), json!("x".repeat(40_000))];
    let ignoring = with(false, EnvPolicy::Ignore);
    for value in malformed {
        let resolution = resolved(&extended(&[(ARGS, &value), (ENVS, &value)]), &ignoring);
        assert!(Arc::ptr_eq(&resolution.provider, &ignoring[0]), "{value}");
    }
}

#[test]
fn to_ignore_is_the_default() {
    assert_eq!(ProfileSourced::default(), ProfileSourced { args: false, env: EnvPolicy::Ignore });
    let both = extended(&[(ARGS, &json!(["--more"])), (ENVS, &json!({"A": "1"}))]);
    let resolution = resolved(&both, &configured(&["p"]));
    assert_eq!((&resolution.provider.args, &resolution.provider.env), (&vec![], &vec![]));
}

#[test]
fn one_policy_does_not_open_the_other() {
    let both = extended(&[(ARGS, &json!(["--more"])), (ENVS, &json!({"A": "1"}))]);
    let args = &resolved(&both, &with(true, EnvPolicy::Ignore)).provider;
    assert_eq!((&args.args, args.env.len()), (&texts(&["--own", "--more"]), 2));
    let env = &resolved(&both, &with(false, EnvPolicy::Replace)).provider;
    assert_eq!((&env.args, env.env.len()), (&texts(&["--own"]), 3));
}

#[test]
fn appended_arguments_come_last_and_none_is_dropped() {
    let args = json!(["--own", "--own", "", "-x"]);
    let resolution = resolved(&extended(&[(ARGS, &args)]), &with(true, EnvPolicy::Ignore));
    assert_eq!(resolution.provider.args, ["--own", "--own", "--own", "", "-x"]);
}

#[test]
fn under_append_if_not_exists_the_providers_value_stays() {
    let env = json!({"TENANT": "profile", "Z": "1", "A": "2", "tenant": "3"});
    let expected = pairs(&[("TENANT", "own"), ("REGION", "own"), ("A", "2"), ("Z", "1"), ("tenant", "3")]);
    assert_eq!(env_under(EnvPolicy::AppendIfNotExists, &env), expected);
}

#[test]
fn under_replace_only_the_value_of_the_profile_remains() {
    let env = json!({"TENANT": "profile", "Z": "1", "A": "2"});
    let expected = pairs(&[("REGION", "own"), ("A", "2"), ("TENANT", "profile"), ("Z", "1")]);
    assert_eq!(env_under(EnvPolicy::Replace, &env), expected);
    let twice = Provider {
        env: pairs(&[("A", "1"), ("B", "x"), ("A", "2")]),
        profile_sourced: Some(ProfileSourced { args: false, env: EnvPolicy::Replace }),
        ..provider("p", Command::Name("plugin".into()))
    };
    let resolution = resolved(&extended(&[(ENVS, &json!({"A": "3"}))]), &[Arc::new(twice)]);
    assert_eq!(resolution.provider.env, pairs(&[("B", "x"), ("A", "3")]));
}

#[test]
fn a_profile_that_adds_nothing_shares_the_configured_provider() {
    let open = with(true, EnvPolicy::AppendIfNotExists);
    let nothing = [
        extended(&[]),
        extended(&[(ARGS, &json!([])), (ENVS, &json!({}))]),
        extended(&[(ENVS, &json!({"TENANT": "profile"}))]),
    ];
    for profile in nothing {
        assert!(Arc::ptr_eq(&resolved(&profile, &open).provider, &open[0]));
    }
}

#[test]
fn a_line_break_or_a_nul_is_refused_in_arguments_and_variables() {
    for odd in ["a\nb", "a\rb", "a\0b", "\n"] {
        let args = refused(&extended(&[(ARGS, &json!(["ok", odd]))]), &with(true, EnvPolicy::Ignore));
        assert_eq!(
            args,
            "access provider `p`: cluster.extensions[0].extension contains an argument with a line break or a NUL"
        );
        for env in [json!({"A": odd}), json!({odd: "a"})] {
            let error = refused_under(EnvPolicy::Replace, &env);
            assert_eq!(
                error,
                "access provider `p`: cluster.extensions[0].extension contains a variable with an empty name, a `=` in its name, a line break or a NUL"
            );
        }
    }
    for name in ["", "A=B", "="] {
        assert!(
            refused_under(EnvPolicy::AppendIfNotExists, &json!({name: "x"})).contains("empty name"),
            "{name}"
        );
    }
}

#[test]
fn a_profile_adds_64_items_and_32_kib_at_most() {
    let open = with(true, EnvPolicy::Replace);
    let args = |count: usize, size: usize| extended(&[(ARGS, &json!(vec!["x".repeat(size); count]))]);
    let env = |count: usize, size: usize| {
        let of = |index: usize| (format!("N{index:03}"), json!("x".repeat(size - 4)));
        extended(&[(ENVS, &Value::Object((0..count).map(of).collect()))])
    };
    assert_eq!(resolved(&args(64, 512), &open).provider.args.len(), 65);
    assert_eq!(resolved(&env(64, 512), &open).provider.env.len(), 66);
    let all = [
        args(65, 1),
        args(64, 513),
        args(1, (32 << 10) + 1),
        env(65, 4),
        env(64, 513),
        env(1, (32 << 10) + 1),
    ];
    let at =
        |problem| format!("access provider `p`: cluster.extensions[0].extension has more than {problem}");
    let (items, bytes) = (at("64 items"), at("32 KiB"));
    let errors = all.map(|profile| refused(&profile, &open));
    assert_eq!(errors, [&items, &bytes, &bytes, &items, &bytes, &bytes].map(String::clone));
}

#[test]
fn the_order_of_variables_does_not_depend_on_the_object() {
    let forwards = serde_json::from_str(r#"{"A": "1", "B": "2", "TENANT": "3"}"#).unwrap();
    let backwards = serde_json::from_str(r#"{"TENANT": "3", "B": "2", "A": "1"}"#).unwrap();
    for policy in [EnvPolicy::Replace, EnvPolicy::AppendIfNotExists] {
        assert_eq!(env_under(policy, &forwards), env_under(policy, &backwards));
    }
}

#[test]
fn the_additions_of_one_profile_do_not_affect_another() {
    let open = with(true, EnvPolicy::AppendIfNotExists);
    let of = |id: &str| extended(&[(ARGS, &json!(["--cluster", id])), (ENVS, &json!({"CLUSTER": id}))]);
    let expected = |id: &str| {
        let env = pairs(&[("TENANT", "own"), ("REGION", "own"), ("CLUSTER", id)]);
        (texts(&["--own", "--cluster", id]), env)
    };
    for _ in 0..1000 {
        for id in ["a", "a", "b"] {
            let provider = &resolved(&of(id), &open).provider;
            assert_eq!((provider.args.clone(), provider.env.clone()), expected(id));
        }
        let plain = &resolved(&extended(&[]), &open).provider;
        assert_eq!((plain.args.clone(), plain.env.len()), (texts(&["--own"]), 2));
    }
    assert_eq!((&open[0].args, open[0].env.len()), (&texts(&["--own"]), 2));
}
