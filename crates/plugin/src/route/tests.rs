use std::cell::RefCell;

use super::*;
use crate::{Command, Definition, Environment, Globs, Providers, identity_variables, testing::provider};

/// A provider that takes these variables from callers and runs with `inherited`.
fn taking(patterns: &[&str], inherited: &[(&str, &str)]) -> Provider {
    let inherited: Environment = inherited.iter().copied().collect();
    Provider {
        caller_env: Globs::new(patterns),
        inherited: inherited.into(),
        ..provider("p", Command::Name("x".into()))
    }
}

fn checked(provider: &Provider, origin: Origin, name: &str, value: &str) -> Result<(), String> {
    let sent = Sent { env: &BTreeMap::new(), by_name: &[], origin };
    check(name, value, sent, provider).map_err(|problem| provider.error(problem).to_string())
}

#[track_caller]
fn refused(provider: &Provider, origin: Origin, name: &str, value: &str) -> String {
    let error = checked(provider, origin, name, value).unwrap_err();
    assert!(!error.contains("canary"), "{error}");
    error
}

#[test]
fn the_caller_gives_only_what_is_named_and_the_stanza_does_not_set() {
    let mut provider = taking(&["AWS_*", "LD_*"], &[]);
    provider.env = vec![("AWS_REGION".to_owned(), "us".to_owned())];
    let sent = Sent { env: &BTreeMap::new(), by_name: &[], origin: Origin::Beside };
    let names = ["AWS_PROFILE", "AWS_REGION", "HOME", "LD_PRELOAD"];
    let reaching = names.map(|name| reaches(name, sent, &provider));
    assert_eq!(reaching, [true, false, false, false]);
}

#[test]
fn a_program_is_never_the_callers() {
    let kubeconfig = Provider { caller_env: identity_variables(), ..taking(&[], &[]) };
    for origin in [Origin::Beside, Origin::Elsewhere] {
        for name in [
            "CLOUDSDK_PYTHON",
            "GOOGLE_EXTERNAL_ACCOUNT_ALLOW_EXECUTABLES",
            "AZURE_EXTENSION_DIR",
            "AWS_PAGER",
            "KUBELOGIN_BROWSER",
        ] {
            refused(&kubeconfig, origin, name, "canary");
            assert!(checked(&kubeconfig, origin, name, "").is_ok(), "an empty value names no program");
        }
        for name in ["LD_PRELOAD", "PATH", "PYTHONPATH", "NODE_OPTIONS"] {
            refused(&taking(&["*"], &[]), origin, name, "canary");
            refused(&taking(&[name], &[]), origin, name, "canary");
        }
    }
    insta::assert_snapshot!(refused(&kubeconfig, Origin::Beside, "CLOUDSDK_PYTHON", "canary"), @"provider `p`: the caller's variable `CLOUDSDK_PYTHON` is not allowed: it can make the plugin run another program; unset it, or set it in `env` of the provider's `exec` stanza");
}

#[test]
fn files_and_issuers_are_those_of_a_process_beside_the_broker() {
    let kubeconfig = Provider { caller_env: identity_variables(), ..taking(&[], &[]) };
    for name in [
        "AWS_CONFIG_FILE",
        "AWS_SHARED_CREDENTIALS_FILE",
        "AWS_CA_BUNDLE",
        "AWS_ENDPOINT_URL",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
        "AWS_WEB_IDENTITY_TOKEN_FILE",
        "AZURE_CONFIG_DIR",
        "AZURE_AUTHORITY_HOST",
        "CLOUDSDK_CONFIG",
        "CLOUDSDK_PROXY_ADDRESS",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "KRB5CCNAME",
        "OIDC_ISSUER_URL",
        "OS_AUTH_URL",
        "TELEPORT_HOME",
        "VAULT_ADDR",
    ] {
        assert!(checked(&kubeconfig, Origin::Beside, name, "canary").is_ok(), "{name}");
        refused(&kubeconfig, Origin::Elsewhere, name, "canary");
        refused(&taking(&[name], &[]), Origin::Elsewhere, name, "canary");
    }
    insta::assert_snapshot!(refused(&kubeconfig, Origin::Elsewhere, "AWS_CONFIG_FILE", "canary"), @"provider `p`: the caller's variable `AWS_CONFIG_FILE` is not allowed: it names a file or a service, which only a process of the broker's own user, mount namespace and PID namespace may choose; unset it, or set it in `env` of the provider's `exec` stanza");
}

#[test]
fn names_and_values_pass_from_everywhere() {
    let kubeconfig = Provider { caller_env: identity_variables(), ..taking(&[], &[]) };
    for name in ["AWS_PROFILE", "AWS_REGION", "AWS_SECRET_ACCESS_KEY", "AZURE_CLIENT_ID", "OS_CLOUD"] {
        assert!(checked(&kubeconfig, Origin::Elsewhere, name, "dev").is_ok(), "{name}");
    }
}

#[test]
fn what_the_broker_does_not_know_passes_beside_it_or_by_its_full_name() {
    let by_glob = taking(&["AWS_*", "TEN*"], &[]);
    for name in ["AWS_SOMETHING_NEW", "TENANT"] {
        assert!(checked(&by_glob, Origin::Beside, name, "x").is_ok());
        refused(&by_glob, Origin::Elsewhere, name, "canary");
    }
    assert!(checked(&taking(&["A*", "TENANT"], &[]), Origin::Elsewhere, "TENANT", "x").is_ok());
    insta::assert_snapshot!(refused(&by_glob, Origin::Elsewhere, "TENANT", "canary"), @"provider `p`: the caller's variable `TENANT` is not allowed: the broker does not know what it can change, and the caller is not a process of the broker's own user, mount namespace and PID namespace; unset it, or set it in `env` of the provider's `exec` stanza, or name it in `callerEnv` without a `*`");
}

#[test]
fn a_variable_that_does_not_reach_the_plugin_is_not_refused() {
    let mut provider = taking(&["AWS_*"], &[]);
    provider.env = vec![("AWS_CONFIG_FILE".to_owned(), "/own".to_owned())];
    for name in ["CLOUDSDK_PYTHON", "LD_PRELOAD", "PATH", "AWS_CONFIG_FILE"] {
        assert!(checked(&provider, Origin::Elsewhere, name, "x").is_ok(), "{name}");
    }
}

#[test]
fn an_identity_that_the_plugin_would_not_get_is_a_conflict() {
    let prod = taking(&[], &[("AWS_PROFILE", "prod")]);
    insta::assert_snapshot!(refused(&prod, Origin::Beside, "AWS_PROFILE", "canary"), @"provider `p`: the caller sets `AWS_PROFILE`, but the plugin would run with a different value of it; to use the caller's value, add `callerEnv: [AWS_PROFILE]` to the provider; to use the broker's identity for every caller, write `callerEnv: []` there");
    insta::assert_snapshot!(refused(&prod, Origin::Beside, "CLOUDSDK_ACTIVE_CONFIG_NAME", "canary"), @"provider `p`: the caller sets `CLOUDSDK_ACTIVE_CONFIG_NAME`, but the plugin would run without it; to use the caller's value, add `callerEnv: [CLOUDSDK_ACTIVE_CONFIG_NAME]` to the provider; to use the broker's identity for every caller, write `callerEnv: []` there");
    assert!(checked(&prod, Origin::Elsewhere, "AWS_PROFILE", "prod").is_ok(), "it is the same");
    assert!(checked(&prod, Origin::Elsewhere, "AZURE_CLIENT_ID", "").is_ok(), "nothing, as there");
    refused(&prod, Origin::Beside, "AWS_PROFILE", "");
    for name in ["AWS_REGION", "AWS_ACCESS_KEY_ID", "AWS_CONFIG_FILE", "HOME"] {
        assert!(checked(&prod, Origin::Elsewhere, name, "other").is_ok(), "{name} selects none by name");
    }
    let pinned = Provider { env: vec![("AWS_PROFILE".into(), "prod".into())], ..taking(&[], &[]) };
    assert!(checked(&pinned, Origin::Beside, "AWS_PROFILE", "prod").is_ok());
    refused(&pinned, Origin::Beside, "AWS_PROFILE", "canary");
}

/// Callers do not send these by themselves: `CREDBROKER_CALLER_ENV` names them.
#[test]
fn what_looks_like_an_identity_and_was_chosen_to_be_sent_is_never_ignored() {
    let inherited = [("SCW_PROFILE", "prod")];
    for provider in [taking(&[], &inherited), taking(&["AWS_*"], &inherited)] {
        refused(&provider, Origin::Beside, "SCW_PROFILE", "canary");
        refused(&provider, Origin::Beside, "EXOSCALE_ACCOUNT", "canary");
        assert!(checked(&provider, Origin::Elsewhere, "SCW_PROFILE", "prod").is_ok(), "it is the same");
    }
    for name in ["SCW_REGION", "OTHER", "AZURE_STORAGE_ACCOUNT"] {
        assert!(checked(&taking(&[], &[]), Origin::Elsewhere, name, "other").is_ok(), "{name}");
    }
    let brokers = Provider { refuses_other_identities: false, ..taking(&[], &[]) };
    assert!(checked(&brokers, Origin::Elsewhere, "EXOSCALE_ACCOUNT", "dev").is_ok());
}

#[test]
fn a_list_that_is_written_out_is_the_answer() {
    let brokers = Provider { refuses_other_identities: false, ..taking(&[], &[("AWS_PROFILE", "prod")]) };
    assert!(checked(&brokers, Origin::Elsewhere, "AWS_PROFILE", "dev").is_ok());
    let callers = taking(&["AWS_PROFILE"], &[]);
    assert!(checked(&callers, Origin::Elsewhere, "AWS_PROFILE", "dev").is_ok());
    refused(&callers, Origin::Elsewhere, "CLOUDSDK_CORE_ACCOUNT", "canary");
}

/// Of IAM roles for service accounts: the sidecar has them, and its callers may or may not.
#[test]
fn a_workload_identity_of_the_broker_serves_callers_that_name_none() {
    let role = [
        ("AWS_ROLE_ARN", "arn:aws:iam::1:role/a"),
        ("AWS_WEB_IDENTITY_TOKEN_FILE", "/var/run/token"),
        ("AWS_REGION", "eu-west-1"),
    ];
    let sidecar = taking(&[], &role);
    for (name, value) in role {
        assert!(checked(&sidecar, Origin::Elsewhere, name, value).is_ok(), "the same in every container");
    }
    refused(&sidecar, Origin::Elsewhere, "AWS_ROLE_ARN", "canary");
}

/// A provider from a kubeconfig.
fn of_kubeconfig() -> Provider {
    let definition = Definition::new("/k".into(), "p", "0");
    Provider { definition: Some(definition), caller_env: identity_variables(), ..taking(&[], &[]) }
}

/// The variables that reach the plugin if a caller in another container sends these because of their names, and the warnings.
fn by_name(provider: Provider, names: &[&str]) -> (Vec<String>, Vec<String>) {
    let env = names.iter().map(|name| ((*name).to_owned(), "canary".to_owned())).collect();
    let by_name: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
    let sent = Sent { env: &env, by_name: &by_name, origin: Origin::Elsewhere };
    let providers = Providers::new([provider]);
    let entry = providers.entry(&"p".into()).unwrap();
    let warnings = RefCell::new(Vec::new());
    for _ in 0..2 {
        let route = entry.of_provider(None).unwrap();
        route.check(sent, |why| warnings.borrow_mut().push(why.to_string())).unwrap();
    }
    let spec = entry.of_provider(None).unwrap().spec(sent).unwrap();
    assert!(spec.is_of(sent) && !warnings.borrow().concat().contains("canary"));
    (spec.caller_env.into_keys().collect(), warnings.into_inner())
}

#[test]
fn each_account_of_a_kubeconfig_is_that_of_the_caller_wherever_that_runs() {
    let names = ["HCLOUD_CONTEXT", "MY_PROJECT", "PROJECT_DIR", "R_PROFILE", "SCW_PROFILE", "X_REGION"];
    let (reaching, warnings) = by_name(of_kubeconfig(), &names);
    assert_eq!(
        reaching,
        ["HCLOUD_CONTEXT", "MY_PROJECT", "SCW_PROFILE", "X_REGION"],
        "no program and no file"
    );
    assert_eq!(warnings, [""; 0]);
    for origin in [Origin::Beside, Origin::Elsewhere] {
        for name in names {
            assert!(checked(&of_kubeconfig(), origin, name, "x").is_ok(), "{name}, sent for another reason");
        }
    }
}

#[test]
fn an_account_that_a_configured_provider_does_not_take_is_one_warning_and_no_error() {
    let names = ["A_REGION", "MY_PROJECT", "PROJECT_DIR", "SCW_PROFILE"];
    let (reaching, warnings) = by_name(taking(&[], &[("MY_PROJECT", "canary")]), &names);
    assert_eq!(reaching, [""; 0]);
    insta::assert_snapshot!(warnings.join("\n"), @r"
    provider `p`: the caller sets `A_REGION`, but the plugin would run without it; to use the caller's value, add `callerEnv: [A_REGION]` to the provider; to use the broker's identity for every caller, write `callerEnv: []` there
    provider `p`: the caller sets `SCW_PROFILE`, but the plugin would run without it; to use the caller's value, add `callerEnv: [SCW_PROFILE]` to the provider; to use the broker's identity for every caller, write `callerEnv: []` there
    ");
    let brokers = Provider { refuses_other_identities: false, ..taking(&[], &[]) };
    assert_eq!(by_name(brokers, &names), (vec![], vec![]), "the configuration decided");
    let (reaching, warnings) = by_name(taking(&["*", "MY_PROJECT"], &[]), &names);
    assert_eq!((reaching.join(" "), warnings.len()), ("A_REGION MY_PROJECT SCW_PROFILE".to_owned(), 0));
    let (reaching, warnings) = by_name(taking(&["*"], &[]), &names);
    assert_eq!(
        (reaching.join(" "), warnings.len()),
        ("A_REGION SCW_PROFILE".to_owned(), 1),
        "what MY_PROJECT changes is unknown"
    );
    let many: Vec<_> = (10..40).map(|number| format!("A{number}_PROFILE")).collect();
    let many: Vec<_> = many.iter().map(String::as_str).collect();
    assert_eq!(by_name(taking(&[], &[]), &many).1.len(), 16);
}

#[test]
fn a_credential_is_that_of_a_caller_whose_variables_lead_to_it() {
    let providers = Providers::new([of_kubeconfig()]);
    let entry = providers.entry(&"p".into()).unwrap();
    let dev = [("AWS_PROFILE".to_owned(), "dev".to_owned())].into();
    let other = [("AWS_PROFILE".to_owned(), "prod".to_owned())].into();
    let program =
        [("AWS_PROFILE".to_owned(), "dev".to_owned()), ("AWS_PAGER".to_owned(), "x".to_owned())].into();
    let sent = |env| Sent { env, by_name: &[], origin: Origin::Beside };
    let spec = entry.of_provider(None).unwrap().spec(sent(&dev)).unwrap();
    let found = [&dev, &other, &program, &BTreeMap::new()].map(|env| spec.is_of(sent(env)));
    assert_eq!(found, [true, false, false, false]);
}
