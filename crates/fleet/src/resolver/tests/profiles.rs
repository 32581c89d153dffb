//! By the name of a ClusterProfile.

use serde_json::{Value, json};

use super::*;
use credbroker_plugin::{
    EnvPolicy, ProfileSourced,
    cluster_profile::{ClusterProfile, EndpointRules},
};

/// A resolver of these providers with a fleet whose hub was read.
pub(super) fn with_fleet(providers: impl IntoIterator<Item = Provider>) -> Resolver {
    let resolver = with_unread_fleet(providers);
    resolver.fleet().unwrap().set_hub(true, None);
    resolver
}

pub(super) fn with_unread_fleet(providers: impl IntoIterator<Item = Provider>) -> Resolver {
    let providers = Arc::new(Providers::new(providers));
    let fleet = Fleet::new(Arc::clone(&providers), EndpointRules::default());
    Resolver::new(providers, Some(Arc::new(fleet)))
}

pub(super) fn apply(resolver: &Resolver, name: &str, provider: &str, cluster: &Value) {
    let status = json!({"accessProviders": [{"name": provider, "cluster": cluster}]});
    let profile = ClusterProfile::read(named(name), &Value::Null, &status);
    resolver.fleet().unwrap().apply(profile);
}

pub(super) fn named(name: &str) -> ProfileName {
    ProfileName::new("fleet", name)
}

pub(super) fn by_profile(name: &str) -> CredentialRequest {
    CredentialRequest {
        source: Source::ClusterProfile(named(name)),
        origin: Origin::Beside,
        ..CredentialRequest::default()
    }
}

/// An object with all that a caller's cluster is compared by.
pub(super) fn paris() -> Value {
    json!({
        "server": "https://paris:6443",
        "certificate-authority-data": "Q0E=",
        "tls-server-name": "paris",
        "extensions": [{"name": "client.authentication.k8s.io/exec", "extension": {"audience": "paris"}}],
    })
}

/// The same as a caller sends it.
pub(super) fn sent_paris() -> Cluster {
    Cluster {
        server: "https://paris:6443".into(),
        certificate_authority_data: "CA".into(),
        tls_server_name: "paris".into(),
        config: r#"{"audience":"paris"}"#.into(),
        ..Cluster::default()
    }
}

/// What `change` makes of it.
#[expect(clippy::unnecessary_wraps, reason = "as a request has it")]
pub(super) fn sent(change: impl FnOnce(&mut Cluster)) -> Option<Cluster> {
    let mut cluster = sent_paris();
    change(&mut cluster);
    Some(cluster)
}

fn informed(dir: &Path) -> Provider {
    Provider { provide_cluster_info: true, ..provider("p", plugin(dir)) }
}

#[test]
fn a_profile_leads_to_a_run_for_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let sourced = ProfileSourced { args: true, env: EnvPolicy::Replace };
    let resolver = with_fleet([Provider {
        args: vec!["--own".into()],
        caller_env: Globs::new(["*"]),
        profile_sourced: Some(sourced),
        ..informed(dir.path())
    }]);
    let mut cluster = paris();
    let prefix = "clusterprofiles.multicluster.x-k8s.io/exec";
    let more = [
        json!({"name": format!("{prefix}/additional-args"), "extension": ["--more"]}),
        json!({"name": format!("{prefix}/additional-envs"), "extension": {"A": "profile"}}),
    ];
    cluster["extensions"].as_array_mut().unwrap().extend(more);
    apply(&resolver, "paris", "p", &cluster);
    let env = [("A".to_owned(), "caller".to_owned()), ("B".to_owned(), "caller".to_owned())].into();
    let spec = resolver.resolve(CredentialRequest { env, ..by_profile("paris") }).unwrap();
    assert_eq!(spec.cluster.as_deref(), Some(&sent_paris()));
    assert_eq!(spec.provider.args, ["--own", "--more"]);
    assert_eq!(
        spec.caller_env.keys().collect::<Vec<_>>(),
        ["B"],
        "the profile's value wins over the caller's"
    );
    assert_eq!(spec.environment(None).get(std::ffi::OsStr::new("A")).unwrap(), "profile");
    assert_eq!(spec.target.unwrap().profile, named("paris"));
    assert_eq!(resolver.providers().find("p").unwrap().args, ["--own"]);
}

#[test]
fn a_plugin_that_wants_no_cluster_still_runs_for_one_place_alone() {
    let dir = tempfile::tempdir().unwrap();
    let resolver = with_fleet([provider("p", plugin(dir.path()))]);
    apply(&resolver, "paris", "p", &paris());
    apply(&resolver, "tokyo", "p", &json!({"server": "https://tokyo"}));
    apply(&resolver, "twin", "p", &paris());
    let keys = ["paris", "tokyo", "twin"].map(|name| {
        let spec = resolver.resolve(by_profile(name)).unwrap();
        assert_eq!(spec.cluster, None);
        spec.key
    });
    let provider = resolver.resolve(ask("p")).unwrap().key;
    let distinct: std::collections::HashSet<_> = keys.into_iter().chain([provider]).collect();
    assert_eq!(distinct.len(), 4);
    apply(&resolver, "paris", "p", &json!({"server": "https://elsewhere"}));
    assert_ne!(resolver.resolve(by_profile("paris")).unwrap().key, keys[0], "another place");
    apply(&resolver, "paris", "p", &paris());
    assert_eq!(resolver.resolve(by_profile("paris")).unwrap().key, keys[0], "the same place again");
}

#[test]
fn what_a_caller_adds_is_another_run_of_a_profile_and_an_upgrade_is_none() {
    let dir = tempfile::tempdir().unwrap();
    let resolver =
        with_fleet([Provider { caller_env: Globs::new(["A"]), ..provider("p", plugin(dir.path())) }]);
    apply(&resolver, "paris", "p", &paris());
    let key = |value: &str| {
        let env = [("A".to_owned(), value.to_owned())].into();
        let ask = CredentialRequest { env, ..by_profile("paris") };
        let key = resolver.key(&ask).unwrap();
        assert_eq!(resolver.resolve(ask).unwrap().key, key);
        key
    };
    let before = key("1");
    assert_ne!(before, key("2"));
    let error = refused(
        &resolver,
        CredentialRequest { env: [("A".into(), "\0".into())].into(), ..by_profile("paris") },
    );
    assert!(error.contains("cannot be passed on"), "{error}");
    fs::create_dir(dir.path().join("other")).unwrap();
    plugin(&dir.path().join("other"));
    fs::rename(dir.path().join("other/plugin"), dir.path().join("plugin")).unwrap();
    look_up_files(&resolver.providers());
    assert_eq!(before, key("1"));
}

#[test]
fn what_a_caller_sends_beside_a_profile_must_match_it() {
    let dir = tempfile::tempdir().unwrap();
    for info in [ClusterInfo::FromCaller, ClusterInfo::Match] {
        let resolver = with_fleet([Provider { cluster_info: info, ..informed(dir.path()) }]);
        apply(&resolver, "paris", "p", &paris());
        let of = |cluster| resolver.resolve(CredentialRequest { cluster, ..by_profile("paris") });
        let key = of(None).unwrap().key;
        for same in [
            sent(|_| {}),
            sent(|sent| *sent = Cluster { server: "https://paris:6443/".into(), ..Cluster::default() }),
            sent(|sent| sent.proxy_url = "http://mine".into()),
            sent(|sent| sent.disable_compression = true),
        ] {
            let spec = of(same.map(Box::new)).unwrap();
            assert_eq!((spec.key, spec.cluster.as_deref()), (key, Some(&sent_paris())), "the broker's own");
        }
        let others = [
            sent(|sent| sent.server = "https://tokyo".into()),
            sent(|sent| sent.certificate_authority_data = "other".into()),
            sent(|sent| sent.tls_server_name = "tokyo".into()),
            sent(|sent| sent.config = r#"{"audience":"tokyo"}"#.into()),
        ];
        let errors = others.map(|other| of(other.map(Box::new)).unwrap_err().to_string()).join("\n");
        insta::allow_duplicates! {
            insta::assert_snapshot!(errors, @r"
            provider `p`: the caller sent a cluster that differs from the cluster of ClusterProfile `fleet/paris`: its server is different; the plugin did not run. If the cluster is from an old kubeconfig, write the kubeconfig again with `credbroker kubeconfig wrap` or `credbroker kubeconfig fleet`
            provider `p`: the caller sent a cluster that differs from the cluster of ClusterProfile `fleet/paris`: its certificate authorities are different; the plugin did not run. If the cluster is from an old kubeconfig, write the kubeconfig again with `credbroker kubeconfig wrap` or `credbroker kubeconfig fleet`
            provider `p`: the caller sent a cluster that differs from the cluster of ClusterProfile `fleet/paris`: its TLS server name is different; the plugin did not run. If the cluster is from an old kubeconfig, write the kubeconfig again with `credbroker kubeconfig wrap` or `credbroker kubeconfig fleet`
            provider `p`: the caller sent a cluster that differs from the cluster of ClusterProfile `fleet/paris`: its exec extension is different; the plugin did not run. If the cluster is from an old kubeconfig, write the kubeconfig again with `credbroker kubeconfig wrap` or `credbroker kubeconfig fleet`
            ");
        }
    }
}

#[test]
fn the_error_says_why_a_profile_is_missing() {
    let of = |name: &str| provider(name, Command::Name("x".into()));
    let paris = || by_profile("paris");
    insta::assert_snapshot!(refused(&resolver([of("p")]), paris()), @"ClusterProfile `fleet/paris` not found: this broker does not read ClusterProfiles; add `clusterProfiles` to its configuration");
    let fleet = with_unread_fleet([of("p")]);
    insta::assert_snapshot!(refused(&fleet, paris()), @"ClusterProfile `fleet/paris` is not known yet: the hub has not answered yet");
    fleet.fleet().unwrap().set_hub(false, Some("connection refused".into()));
    insta::assert_snapshot!(refused(&fleet, paris()), @"ClusterProfile `fleet/paris` is not known yet: connection refused");
    fleet.fleet().unwrap().set_hub(true, Some("connection refused".into()));
    insta::assert_snapshot!(refused(&fleet, paris()), @"ClusterProfile `fleet/paris` not found in the namespaces that the broker reads, or it lacks the label that `clusterProfiles.labelSelector` asks for");
    assert!(fleet.follow(&with_fleet_spec()).is_none());
}

/// A run for no profile.
fn with_fleet_spec() -> PluginSpec {
    let dir = tempfile::tempdir().unwrap();
    resolver([provider("p", plugin(dir.path()))]).resolve(ask("p")).unwrap()
}

#[test]
fn a_name_that_a_caller_makes_up_steers_no_terminal_and_fits_a_header() {
    let of = || [provider("p", Command::Name("x".into()))];
    let long = "\u{1b}[2J\n".repeat(100_000);
    let ask = || CredentialRequest {
        source: Source::ClusterProfile(ProfileName::new(&*long, &*long)),
        ..CredentialRequest::default()
    };
    for resolver in [resolver(of()), with_unread_fleet(of()), with_fleet(of())] {
        let error = refused(&resolver, ask());
        assert!(!error.contains(char::is_control) && error.len() < 4096, "{} bytes", error.len());
    }
}

#[test]
fn a_profile_that_cannot_be_used_says_why() {
    let resolver = with_fleet([provider("p", Command::Name("x".into()))]);
    apply(&resolver, "paris", "q", &paris());
    let error = resolver.resolve(by_profile("paris")).unwrap_err();
    assert_eq!(error.to_string(), "ClusterProfile `fleet/paris` cannot be used");
    let source = std::error::Error::source(&error).unwrap().to_string();
    insta::assert_snapshot!(source, @"no provider matches: the profile lists q; the broker has p");
}

#[test]
fn what_a_provider_cannot_do_it_cannot_do_for_a_profile() {
    let terminal = Provider {
        interactive: credbroker_plugin::Interactive::Always,
        ..provider("t", Command::Name("x".into()))
    };
    let user = Provider { profile_sourced: None, ..provider("u", Command::Name("x".into())) };
    let resolver = with_fleet([terminal, user]);
    for name in ["t", "u"] {
        apply(&resolver, name, name, &paris());
    }
    let error = |name| resolver.resolve(by_profile(name)).unwrap_err();
    insta::assert_snapshot!(error("t"), @"provider `t`: exec plugin cannot support interactive mode: standard input is unavailable: `interactiveMode` is Always, and there is no terminal for a ClusterProfile");
    assert!(
        matches!(error("u"), ResolveError::Profile(..)),
        "a user of a kubeconfig is not an access provider"
    );
}

#[test]
fn who_holds_a_run_for_a_profile_can_follow_it() {
    let dir = tempfile::tempdir().unwrap();
    let resolver = with_fleet([informed(dir.path())]);
    apply(&resolver, "paris", "p", &paris());
    let spec = resolver.resolve(by_profile("paris")).unwrap();
    assert!(
        resolver
            .follow(
                &resolver
                    .resolve(CredentialRequest { cluster: Some(Box::new(sent_paris())), ..ask("p") })
                    .unwrap()
            )
            .is_none()
    );
    apply(&resolver, "paris", "p", &json!({"server": "https://elsewhere"}));
    let followed = resolver.follow(&spec).unwrap();
    assert!(followed.has_changed().unwrap(), "it changed between the two");
    resolver.fleet().unwrap().remove(&named("paris"));
    assert!(followed.has_changed().is_err());
}
