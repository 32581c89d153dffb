//! Properties of every profile.

use proptest::{prelude::*, sample::select};

use super::*;
use crate::{key::PluginKey, variables::is_denied_to_profiles};
use credbroker_credential::Cluster;

/// Any JSON, in which the reserved names are frequent.
fn json() -> impl Strategy<Value = Value> {
    let key = prop_oneof![
        8 => select(vec![
            "accessProviders", "credentialProviders", "name", "cluster", "server", "extensions", "extension", "args",
            "certificate-authority-data", "certificate-authority", "proxy-url", "insecure-skip-tls-verify", "properties",
        ]).prop_map(str::to_owned),
        1 => ".{0,4}",
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        select(vec!["a", "b", "https://x", "http://x", ARGS, ENVS, CONFIG]).prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
        "[\u{0}-\u{1f}\u{7f}-\u{9f}\u{202e}]{0,4}".prop_map(Value::from),
    ];
    leaf.prop_recursive(7, 48, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::btree_map(key.clone(), inner, 0..5)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// A status of the right shape, whose values may be wrong.
fn status() -> impl Strategy<Value = Value> {
    let name = || select(vec!["a", "b", "c", "d", "e", "\u{1b}[2J"]);
    let server = select(vec!["https://x", "https://y:6443/", "http://x", "", "https://u@x", "\n"]);
    let extension = || (select(vec![ARGS, ENVS, CONFIG, "other"]), prop_oneof![args(), env(), json()]);
    let extensions = prop::collection::vec(extension(), 0..4);
    let entry = (name(), server, extensions, json()).prop_map(|(name, server, extensions, proxy)| {
        let extensions: Vec<_> =
            extensions.iter().map(|(name, value)| json!({"name": name, "extension": value})).collect();
        let proxy = if proxy.is_string() { proxy } else { Value::Null };
        json!({"name": name, "cluster": {"server": server, "extensions": extensions, "proxy-url": proxy}})
    });
    let entry = entry.boxed();
    let entries = move || prop::collection::vec(entry.clone(), 0..4);
    (entries(), entries())
        .prop_map(|(access, older)| json!({"accessProviders": access, "credentialProviders": older}))
}

fn args() -> impl Strategy<Value = Value> {
    prop::collection::vec("[a-z -]{0,6}", 0..4).prop_map(Value::from)
}

fn env() -> impl Strategy<Value = Value> {
    let denied =
        select(vec!["PATH", "ld_preload", "Https_Proxy", "PYTHONPATH", "KUBERNETES_EXEC_INFO", "OWN"]);
    let name = prop_oneof![3 => "[A-Z_]{1,3}", 1 => denied.prop_map(str::to_owned)];
    prop::collection::btree_map(name, "[a-z]{0,3}", 0..4)
        .prop_map(|map| Value::Object(map.into_iter().map(|(name, value)| (name, value.into())).collect()))
}

/// One provider for each policy.
fn providers() -> Vec<Arc<Provider>> {
    let policies = [
        ("a", false, EnvPolicy::Ignore),
        ("b", true, EnvPolicy::Ignore),
        ("c", true, EnvPolicy::AppendIfNotExists),
        ("d", true, EnvPolicy::Replace),
    ];
    let provider = |(name, args, env)| Provider {
        args: texts(&["--own", "x"]),
        env: pairs(&[("OWN", "1"), ("HTTPS_PROXY", "http://own")]),
        profile_sourced: Some(ProfileSourced { args, env }),
        ..provider(name, Command::Name("plugin".into()))
    };
    policies.map(|policy| Arc::new(provider(policy))).into()
}

/// The observable part of a resolution.
type Seen = Result<(Arc<str>, Vec<String>, Vec<(String, String)>, Cluster, Vec<String>), ProfileError>;

fn seen(profile: &ClusterProfile, providers: &[Arc<Provider>]) -> (Seen, Vec<Skipped>) {
    let Resolution { outcome, skipped, warnings } =
        resolve(profile, providers, EndpointRules { allow_http: true });
    let seen = outcome.map(|target| {
        let provider = Provider::clone(&target.provider);
        (provider.name, provider.args, provider.env, Cluster::clone(&target.endpoint), warnings)
    });
    (seen, skipped)
}

fn digests(providers: &[Arc<Provider>]) -> Vec<PluginKey> {
    providers.iter().map(|provider| PluginKey::of_provider(provider)).collect()
}

proptest! {
    #[test]
    fn any_object_leads_to_a_resolution_or_to_an_error_that_can_be_shown(spec in json(), status in json()) {
        let profile = ClusterProfile::read(ProfileName::new("n", "p"), &spec, &status);
        if let (Err(error), _) = seen(&profile, &providers()) {
            prop_assert!(!error.to_string().contains(char::is_control), "{error}");
        }
    }

    #[test]
    fn arguments_and_variables_are_the_providers_with_what_may_be_added(status in status()) {
        let providers = providers();
        let (outcome, _) = seen(&profile(&status), &providers);
        match outcome {
            Err(error) => prop_assert!(!error.to_string().contains(char::is_control), "{error}"),
            Ok((name, args, env, endpoint, _)) => {
                let own = providers.iter().find(|own| own.name == name).unwrap();
                prop_assert!(args.starts_with(&own.args));
                let added: Vec<_> = env.iter().filter(|variable| !own.env.contains(variable)).collect();
                prop_assert!(added.iter().all(|(name, value)| !is_denied_to_profiles(name, value)), "{added:?}");
                prop_assert!(added.is_sorted(), "{added:?}");
                let names: std::collections::HashSet<_> = env.iter().map(|(name, _)| name).collect();
                prop_assert_eq!(names.len(), env.len(), "one place for each");
                prop_assert!(endpoint.server.starts_with("http"));
            }
        }
    }

    #[test]
    fn one_profile_does_not_affect_the_next(one in status(), two in status()) {
        let providers = providers();
        let before = digests(&providers);
        let (one, two) = (profile(&one), profile(&two));
        let first = (seen(&one, &providers), seen(&two, &providers));
        for _ in 0..20 {
            prop_assert_eq!(&seen(&one, &providers), &first.0);
            prop_assert_eq!(&seen(&two, &providers), &first.1);
        }
        prop_assert_eq!(digests(&providers), before);
    }

    #[test]
    fn the_order_of_the_profiles_lists_changes_nothing(status in status()) {
        let mut other = status.clone();
        for list in ["accessProviders", "credentialProviders"] {
            other[list].as_array_mut().unwrap().reverse();
        }
        let ((one, mut skipped), (two, mut others)) =
            (seen(&profile(&status), &providers()), seen(&profile(&other), &providers()));
        match (one, two) {
            // Of several mistakes the first is reported, and names are in the profile's order.
            (Err(_), Err(_)) => {}
            (one, two) => prop_assert_eq!(one, two),
        }
        skipped.sort_by(|one, two| one.name.cmp(&two.name));
        others.sort_by(|one, two| one.name.cmp(&two.name));
        prop_assert_eq!(skipped, others);
    }

    #[test]
    fn profiles_that_differ_in_their_name_alone_are_different_runs(
        status in status(), names in prop::array::uniform4("[a-b/]{0,2}"),
    ) {
        let resolution = resolve(&profile(&status), &providers(), EndpointRules::default());
        if let Ok(resolution) = resolution.outcome {
            let [one, two, three, four] = names;
            let (one, two) = (ProfileName::new(one, two), ProfileName::new(three, four));
            let digest = |name| PluginKey::of_profile(&resolution.provider, name, &resolution.endpoint);
            prop_assert_eq!(digest(&one) == digest(&two), one == two);
            prop_assert_ne!(digest(&one), PluginKey::of_provider(&resolution.provider));
        }
    }
}
