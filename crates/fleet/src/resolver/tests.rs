mod access;
mod clusters;
mod contexts;
mod profiles;
mod waiting;

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

use bytes::Bytes;

use super::*;
use credbroker_plugin::{ClusterInfo, Command, Definition, Globs, Provider, testing::provider};

/// An executable file in `dir`.
fn plugin(dir: &Path) -> Command {
    let path = dir.join("plugin");
    fs::write(&path, "#!/bin/sh\n").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
    Command::Path(path)
}

fn ask(name: &str) -> CredentialRequest {
    CredentialRequest {
        source: Source::Provider(name.into()),
        origin: Origin::Beside,
        ..CredentialRequest::default()
    }
}

fn cluster(server: &str, config: &'static str) -> Cluster {
    Cluster { server: server.into(), config: Bytes::from_static(config.as_bytes()), ..Cluster::default() }
}

fn resolver(providers: impl IntoIterator<Item = Provider>) -> Resolver {
    Resolver::new(Arc::new(Providers::new(providers)), None)
}

fn refused(providers: &Resolver, ask: CredentialRequest) -> String {
    providers.resolve(ask).unwrap_err().to_string()
}

#[test]
fn contexts_that_share_a_user_but_differ_in_the_extension_each_get_their_own() {
    let dir = tempfile::tempdir().unwrap();
    let providers = resolver([Provider { provide_cluster_info: true, ..provider("p", plugin(dir.path())) }]);
    let with =
        |config| CredentialRequest { cluster: Some(Box::new(cluster("https://one", config))), ..ask("p") };
    let one = providers.resolve(with(r#"{"audience":"a"}"#)).unwrap();
    let two = providers.resolve(with(r#"{"audience":"b"}"#)).unwrap();
    assert_ne!(one.key, two.key);
    assert_eq!(one.cluster.as_ref().unwrap().config, r#"{"audience":"a"}"#);
    assert_eq!(two.cluster.unwrap().config, r#"{"audience":"b"}"#);
    assert_eq!(providers.resolve(with(r#"{"audience":"a"}"#)).unwrap().key, one.key);
}

#[test]
fn a_plugin_that_wants_no_cluster_is_one_run_for_all_of_them() {
    let dir = tempfile::tempdir().unwrap();
    let provider = provider("p", plugin(dir.path()));
    let providers = resolver([provider.clone()]);
    let one = providers
        .resolve(CredentialRequest { cluster: Some(Box::new(cluster("https://one", ""))), ..ask("p") })
        .unwrap();
    let two = providers
        .resolve(CredentialRequest { cluster: Some(Box::new(cluster("", "no json"))), ..ask("p") })
        .unwrap();
    assert_eq!((one.key, one.cluster), (two.key, two.cluster));
    let known = Provider { clusters: vec![cluster("https://one", "")], ..provider };
    let three = resolver([known]).resolve(ask("p")).unwrap();
    assert_eq!(
        (three.key, three.cluster),
        (two.key, None),
        "the plugin gets no cluster that only the broker knows"
    );
}

#[test]
fn a_caller_that_sends_no_cluster_gets_the_only_one_there_is() {
    let dir = tempfile::tempdir().unwrap();
    let of =
        |clusters| Provider { provide_cluster_info: true, clusters, ..provider("p", plugin(dir.path())) };
    let [one, two] = ["https://one", "https://two"].map(|server| cluster(server, ""));
    let spec = resolver([of(vec![one.clone()])]).resolve(ask("p")).unwrap();
    assert_eq!(spec.cluster.as_deref(), Some(&one));
    insta::assert_snapshot!(refused(&resolver([of(vec![one, two])]), ask("p")), @"provider `p` has `provideClusterInfo: true`, but the caller sent no cluster and the broker's kubeconfig uses it for 2 clusters; set `provideClusterInfo: true` in the `exec` stanza of the caller's kubeconfig");
    insta::assert_snapshot!(refused(&resolver([of(vec![])]), ask("p")), @"provider `p` has `provideClusterInfo: true`, but the caller sent no cluster and the broker knows none for it; set `provideClusterInfo: true` in the `exec` stanza of the caller's kubeconfig");
}

#[test]
fn a_cluster_that_the_plugin_could_not_read_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let providers = resolver([Provider { provide_cluster_info: true, ..provider("p", plugin(dir.path())) }]);
    let with =
        |server, config| CredentialRequest { cluster: Some(Box::new(cluster(server, config))), ..ask("p") };
    insta::assert_snapshot!(refused(&providers, with("", "")), @"provider `p`: the caller sent a cluster whose `server` is empty");
    insta::assert_snapshot!(refused(&providers, with("https://one", "{\n\"canary\"")), @"provider `p`: the exec extension of the cluster that the caller sent is not valid JSON (line 2, column 8)");
}

#[test]
fn the_caller_changes_the_run_only_by_what_the_provider_names() {
    let dir = tempfile::tempdir().unwrap();
    let providers = resolver([Provider {
        caller_env: Globs::new(["AWS_*"]),
        env: vec![("AWS_REGION".into(), "eu".into())],
        ..provider("p", plugin(dir.path()))
    }]);
    let with = |env: &[(&str, &str)]| {
        let env = env.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        providers.resolve(CredentialRequest { env, ..ask("p") }).unwrap()
    };
    let nothing = with(&[]);
    assert_eq!(with(&[("HOME", "/x"), ("AWS_REGION", "us")]).key, nothing.key);
    let dev = with(&[("AWS_PROFILE", "dev")]);
    assert_ne!(dev.key, nothing.key);
    assert_eq!(dev.environment(None).get(std::ffi::OsStr::new("AWS_PROFILE")).unwrap(), "dev");
    assert_eq!(dev.environment(None).get(std::ffi::OsStr::new("AWS_REGION")).unwrap(), "eu");
}

#[test]
fn a_variable_that_no_process_can_have_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let providers =
        resolver([Provider { caller_env: Globs::new(["*"]), ..provider("p", plugin(dir.path())) }]);
    for (name, value) in [("", "x"), ("A=B", "x"), ("A\0", "x"), ("A", "canary\0")] {
        let error =
            refused(&providers, CredentialRequest { env: [(name.into(), value.into())].into(), ..ask("p") });
        assert!(error.contains("cannot be passed on") && !error.contains("canary"), "{error}");
    }
}

#[test]
fn a_plugin_that_is_replaced_or_removed_is_the_same_run() {
    let dir = tempfile::tempdir().unwrap();
    let providers = resolver([provider("p", plugin(dir.path()))]);
    look_up_files(&providers.providers());
    let before = providers.resolve(ask("p")).unwrap();
    let keeps_the_key = |version| {
        look_up_files(&providers.providers());
        let now = providers.resolve(ask("p")).unwrap();
        assert_eq!((now.key, now.file.version()), (before.key, version));
        assert_eq!(before.file.version(), version, "a spec that was resolved before sees it too");
    };
    keeps_the_key(1);
    fs::create_dir(dir.path().join("other")).unwrap();
    plugin(&dir.path().join("other"));
    fs::rename(dir.path().join("other/plugin"), dir.path().join("plugin")).unwrap();
    keeps_the_key(2);
    fs::remove_file(dir.path().join("plugin")).unwrap();
    keeps_the_key(2);
}

#[test]
fn a_key_is_found_without_the_run_that_it_names() {
    let with = |cluster, env: &[(&str, &str)]| {
        let env = env.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        CredentialRequest { cluster, env, ..ask("p") }
    };
    let asks = || {
        [None, Some(cluster("https://one", "")), Some(cluster("https://two", "{}"))].into_iter().flat_map(
            move |cluster| {
                [&[][..], &[("HOME", "/x")], &[("A", "1")], &[("A", "2"), ("HOME", "/x")]]
                    .map(|env| with(cluster.clone().map(Box::new), env))
            },
        )
    };
    let known = vec![cluster("https://one", "")];
    for provide_cluster_info in [true, false] {
        for cluster_info in [ClusterInfo::FromCaller, ClusterInfo::Match] {
            let providers = resolver([Provider {
                provide_cluster_info,
                cluster_info,
                clusters: known.clone(),
                caller_env: Globs::new(["A"]),
                ..provider("p", Command::Name("x".into()))
            }]);
            for ask in asks() {
                let (key, shown) = (providers.key(&ask), format!("{ask:?}"));
                match (key, providers.resolve(ask)) {
                    (Ok(key), Ok(spec)) => assert_eq!(key, spec.key, "{shown}"),
                    (Err(key), Err(run)) => assert_eq!(key.to_string(), run.to_string()),
                    differ => panic!("{shown}: {differ:?}"),
                }
            }
        }
    }
}

#[test]
fn an_unknown_name_lists_the_known_ones() {
    let of = |name| provider(name, Command::Name("x".into()));
    let providers = resolver([of("production"), of("dev")]);
    insta::assert_snapshot!(refused(&providers, ask("prodution")), @"provider `prodution` not found (did you mean `production`?); known: dev, production");
    insta::assert_snapshot!(refused(&providers, ask("elsewhere")), @"provider `elsewhere` not found; known: dev, production");
}

/// The provider `name` as the kubeconfig `file` defines it.
fn defined(file: &str, name: &str, command: &str) -> Provider {
    let definition = Some(Definition::new(file.into(), name, format!("{name} in {file}")));
    Provider { definition, ..provider(name, Command::Name(command.into())) }
}

fn ask_for(file: &str, name: &str) -> CredentialRequest {
    let definition = Some(format!("{name} in {file}"));
    CredentialRequest { source: Source::Provider(ProviderRef { name: name.into(), definition }), ..ask(name) }
}

#[test]
fn a_definition_leads_to_that_very_provider_and_to_no_other_of_its_name() {
    let resolver =
        resolver([defined("/a", "rel", "one"), defined("/b", "rel", "two"), defined("/b", "x", "two")]);
    let command = |ask: CredentialRequest| {
        let key = resolver.key(&ask).unwrap();
        let spec = resolver.resolve(ask).unwrap();
        assert_eq!(spec.key, key);
        spec.provider.command.to_string()
    };
    assert_eq!(command(ask_for("/a", "rel")), "one");
    assert_eq!(command(ask_for("/b", "rel")), "two");
    assert_eq!(command(ask("x")), "two", "a name is enough where it is the only one");
    let refused = |ask| refused(&resolver, ask);
    insta::assert_snapshot!(refused(ask("rel")), @"provider `rel`: several kubeconfigs define it: /a, /b; name a context instead, or set KUBECONFIG to one of these files");
    insta::assert_snapshot!(refused(ask_for("/c", "rel")), @"provider `rel`: unknown definition rel in /c: the broker has read only /a, /b, where the definition differs; if this kubeconfig is an older copy of that file, write it again with `credbroker kubeconfig wrap`; otherwise add the kubeconfig that defines it to `kubeconfigs` in the broker's configuration, or, if the broker has no configuration, restart it with that kubeconfig in its KUBECONFIG");
    insta::assert_snapshot!(refused(ask_for("/c", "unheard")), @"provider `unheard`: unknown definition unheard in /c: the broker has read no kubeconfig that defines this provider; add the kubeconfig that defines it to `kubeconfigs` in the broker's configuration, or, if the broker has no configuration, restart it with that kubeconfig in its KUBECONFIG");
    assert_eq!(resolver.providers().names(), ["rel", "x"]);
    let mixed = ProviderRef {
        name: "x".into(),
        ..match ask_for("/b", "rel").source {
            Source::Provider(provider) => provider,
            Source::ClusterProfile(_) | Source::Context(_) => unreachable!(),
        }
    };
    assert!(resolver.key(&CredentialRequest { source: Source::Provider(mixed), ..ask("x") }).is_err());
}

#[test]
fn a_configured_provider_has_no_definition_to_ask_for() {
    let resolver = resolver([provider("gke", Command::Name("x".into()))]);
    assert!(resolver.key(&ask("gke")).is_ok());
    insta::assert_snapshot!(refused(&resolver, ask_for("/a", "gke")), @"provider `gke`: unknown definition gke in /a: the broker has read no kubeconfig that defines this provider; add the kubeconfig that defines it to `kubeconfigs` in the broker's configuration, or, if the broker has no configuration, restart it with that kubeconfig in its KUBECONFIG");
}

/// What is held for one is found by no request for the other.
#[test]
fn another_definition_and_a_changed_stanza_are_other_runs() {
    let key = |provider: Provider| resolver([provider]).key(&ask("rel")).unwrap();
    let before = || defined("/a", "rel", "x");
    assert_eq!(key(before()), key(before()));
    let changed = [
        defined("/b", "rel", "x"),
        defined("/a", "rel", "y"),
        Provider { args: vec!["--profile=dev".into()], ..before() },
        Provider { env: vec![("A".into(), "1".into())], ..before() },
        Provider { api_version: credbroker_credential::ApiVersion::V1Beta1, ..before() },
        Provider { command: Command::Path("/x".into()), ..before() },
        Provider { definition: None, ..before() },
    ];
    let keys: std::collections::HashSet<_> = changed.into_iter().chain([before()]).map(key).collect();
    assert_eq!(keys.len(), 8);
}

/// A hit is served past the services, so it must not be found at all.
#[test]
fn what_a_caller_may_not_contribute_finds_nothing_that_is_held() {
    let of = |patterns: &[&str]| {
        resolver([Provider { caller_env: Globs::new(patterns), ..provider("p", Command::Name("x".into())) }])
    };
    let with = |name: &str, origin| CredentialRequest {
        env: [(name.to_owned(), "x".to_owned())].into(),
        origin,
        ..ask("p")
    };
    let file = of(&["AWS_*"]);
    assert!(file.key(&with("AWS_CONFIG_FILE", Origin::Beside)).is_ok());
    for refused in [
        file.key(&with("AWS_CONFIG_FILE", Origin::Elsewhere)),
        file.key(&with("AWS_PAGER", Origin::Beside)),
        of(&[]).key(&with("AWS_PROFILE", Origin::Beside)),
    ] {
        refused.unwrap_err();
    }
}

#[test]
fn a_message_fits_a_header_and_steers_no_terminal() {
    let name = |index| format!("arn:aws:eks:eu-central-1:123456789012:cluster/number-{index}");
    let providers = resolver((0..2000).map(|index| provider(&name(index), Command::Name("x".into()))));
    let error = refused(&providers, ask(&"\u{1b}[2J\n".repeat(100_000)));
    assert!(error.len() < 4096, "{} bytes", error.len());
    assert!(!error.contains(char::is_control), "{error}");
    assert!(error.ends_with("and 1980 more"), "{error}");
}

#[test]
fn debug_of_a_request_shows_no_values() {
    let ask = CredentialRequest {
        cluster: Some(Box::new(cluster("https://one", "canary"))),
        env: [("A".into(), "canary".into())].into(),
        ..ask("p")
    };
    assert!(!format!("{ask:?}").contains("canary"));
    let dir = tempfile::tempdir().unwrap();
    let env = vec![("B".to_owned(), "canary".to_owned())];
    let caller_env = Globs::new(["A"]);
    let provider =
        Provider { env, caller_env, provide_cluster_info: true, ..provider("p", plugin(dir.path())) };
    let ask = CredentialRequest { cluster: Some(Box::new(cluster("https://one", "\"canary\""))), ..ask };
    let spec = resolver([provider]).resolve(ask).unwrap();
    assert_eq!(spec.caller_env["A"], "canary");
    assert!(!format!("{spec:?}").contains("canary"));
}
