use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::{PluginFile, PluginSpec, testing::provider};
use credbroker_credential::ApiVersion;

type Variables = Vec<(String, String)>;
/// The fields of a [`Cluster`], in order.
type Parts = (String, String, bool, Vec<u8>, String, bool, Vec<u8>);

/// All that is in a key, as plain values.
#[derive(Clone, Debug, PartialEq)]
struct Run {
    name: String,
    args: Vec<String>,
    inherited: Variables,
    /// Of a bare name, or of a path.
    command: (bool, String),
    cluster: Option<Parts>,
    caller_env: Variables,
}

fn run() -> impl Strategy<Value = Run> {
    let text = || "[ab=,\n]{0,3}"; // few letters, so that concatenations meet
    let variables =
        || prop::collection::btree_map(text(), text(), 0..3).prop_map(|map| map.into_iter().collect());
    let bytes = || prop::collection::vec(0..3_u8, 0..3);
    let cluster = (text(), text(), any::<bool>(), bytes(), text(), any::<bool>(), bytes());
    let parts = (
        (text(), prop::collection::vec(text(), 0..3), variables(), (any::<bool>(), text())),
        (prop::option::of(cluster), variables()),
    );
    parts.prop_map(|((name, args, inherited, command), (cluster, caller_env))| Run {
        name,
        args,
        inherited,
        command,
        cluster,
        caller_env,
    })
}

fn key(run: &Run) -> PluginKey {
    spec(run).key
}

/// Each part of a key, with its value. `IdPart` shows none.
type Shown = Vec<(PartKind, Vec<u8>, bool, Vec<u8>)>;

fn parts(run: &Run) -> Shown {
    let spec = spec(run);
    let parts = spec.id_parts().into_iter();
    let is_of_caller = |part: &IdPart<'_>| part.origin == PartOrigin::CallerEnv;
    parts.map(|part| (part.kind, part.name.to_vec(), is_of_caller(&part), part.value.into_owned())).collect()
}

fn spec(run: &Run) -> PluginSpec {
    let (is_path, command) = &run.command;
    let command =
        if *is_path { Command::Path(format!("/{command}").into()) } else { Command::Name(command.clone()) };
    let mut provider = provider(&run.name, command);
    provider.args.clone_from(&run.args);
    provider.inherited = Arc::new(run.inherited.iter().cloned().collect());
    let cluster = run.cluster.clone().map(|cluster| Cluster {
        server: cluster.0,
        tls_server_name: cluster.1,
        insecure_skip_tls_verify: cluster.2,
        certificate_authority_data: Bytes::from(cluster.3),
        proxy_url: cluster.4,
        disable_compression: cluster.5,
        config: Bytes::from(cluster.6),
    });
    // The broker does not pass on a variable that it takes from the caller.
    let caller_env: BTreeMap<_, _> =
        run.caller_env.iter().map(|(name, value)| (format!("c{name}"), value.clone())).collect();
    let key = PluginKey::of_provider(&provider).with(cluster.as_ref(), caller_env.iter());
    let file = Arc::new(PluginFile::new(provider.command.clone(), None));
    let cluster = cluster.map(Arc::new);
    PluginSpec { key, provider: Arc::new(provider), file, cluster, caller_env, target: None }
}

/// Each sets one field to what it is in another run.
const FIELDS: [fn(&mut Run, &Run); 12] = [
    |run, other| run.name.clone_from(&other.name),
    |run, other| run.args.clone_from(&other.args),
    |run, other| run.inherited.clone_from(&other.inherited),
    |run, other| run.command.clone_from(&other.command),
    |run, other| run.caller_env.clone_from(&other.caller_env),
    |run, _| run.cluster.get_or_insert_default().0.push('x'),
    |run, _| run.cluster.get_or_insert_default().1.push('x'),
    |run, _| run.cluster.get_or_insert_default().2 ^= true,
    |run, _| run.cluster.get_or_insert_default().3.push(0),
    |run, _| run.cluster.get_or_insert_default().4.push('x'),
    |run, _| run.cluster.get_or_insert_default().5 ^= true,
    |run, _| run.cluster.get_or_insert_default().6.push(0),
];

proptest! {
    #[test]
    fn keys_are_equal_if_and_only_if_the_runs_are(one in run(), other in run()) {
        let mut two = one.clone();
        for field in FIELDS {
            field(&mut two, &other); // first one differs, at last all do
            prop_assert_eq!(key(&one) == key(&two), one == two);
            prop_assert_eq!(parts(&one) == parts(&two), one == two);
            let mut alone = one.clone();
            field(&mut alone, &other);
            prop_assert_eq!(key(&one) == key(&alone), one == alone);
            prop_assert_eq!(parts(&one) == parts(&alone), one == alone);
        }
    }

    #[test]
    fn the_order_of_variables_never_matters(one in run()) {
        let mut two = one.clone();
        two.inherited.reverse();
        two.caller_env.reverse();
        prop_assert_eq!(key(&one), key(&two));
    }
}

#[test]
fn text_that_moves_between_neighbours_is_another_run() {
    let base = Run {
        name: "p".into(),
        args: vec!["ab".into(), "c".into()],
        inherited: vec![("A".into(), "1".into())],
        command: (false, "p".into()),
        cluster: None,
        caller_env: Vec::new(),
    };
    let others = [
        Run { args: vec!["a".into(), "bc".into()], ..base.clone() },
        Run { args: vec!["ab c".into()], ..base.clone() },
        Run { inherited: vec![("A1".into(), String::new())], ..base.clone() },
        Run { command: (true, "p".into()), ..base.clone() },
        Run { inherited: Vec::new(), caller_env: base.inherited.clone(), ..base.clone() },
        Run { cluster: Some(<_>::default()), ..base.clone() }, // none differs from empty
    ];
    for other in others {
        assert_ne!(key(&base), key(&other), "{other:?}");
    }
}

#[test]
fn text_that_moves_between_the_fields_of_a_cluster_is_another_run() {
    let cluster = |fields: [&str; 5]| {
        let [server, name, authorities, proxy, config] = fields.map(str::to_owned);
        let cluster = Cluster {
            server,
            tls_server_name: name,
            certificate_authority_data: authorities.into(),
            proxy_url: proxy,
            config: config.into(),
            ..Cluster::default()
        };
        let provider = provider("p", Command::Name("x".into()));
        PluginKey::of_provider(&provider).with(Some(&cluster), iter::empty())
    };
    let shifted = [
        ["ab", "", "", "", ""],
        ["a", "b", "", "", ""],
        ["", "ab", "", "", ""],
        ["", "a", "b", "", ""],
        ["", "", "ab", "", ""],
        ["", "", "a", "b", ""],
        ["", "", "", "ab", ""],
        ["", "", "", "a", "b"],
    ];
    let keys: std::collections::HashSet<_> = shifted.into_iter().map(cluster).collect();
    assert_eq!(keys.len(), shifted.len());
}

#[test]
fn only_what_changes_the_answer_is_in_the_key() {
    let digest = |change: fn(&mut Provider)| {
        let mut provider = provider("p", Command::Name("x".into()));
        change(&mut provider);
        PluginKey::of_provider(&provider)
    };
    let base = digest(|_| ());
    let same: [fn(&mut Provider); 4] = [
        |provider| provider.install_hint = Some("brew install x".into()),
        |provider| provider.timeout *= 2,
        |provider| provider.interactive_timeout *= 2,
        |provider| provider.inherited = Arc::default(),
    ];
    for change in same {
        assert_eq!(digest(change), base);
    }
    let other: [fn(&mut Provider); 5] = [
        |provider| provider.name = "q".into(),
        |provider| provider.args.push(String::new()),
        |provider| provider.env.push(("A".into(), String::new())),
        |provider| provider.api_version = ApiVersion::V1Beta1,
        |provider| provider.provide_cluster_info = !provider.provide_cluster_info,
    ];
    for change in other {
        assert_ne!(digest(change), base);
    }
}

#[test]
fn a_variable_counts_with_the_value_the_plugin_sees() {
    let digest = |inherited: &[(&str, &str)], env: &[(&str, &str)]| {
        let mut provider = provider("p", Command::Name("x".into()));
        provider.inherited = Arc::new(inherited.iter().copied().collect());
        provider.env = env.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        PluginKey::of_provider(&provider)
    };
    let plain = digest(&[("A", "2")], &[]);
    assert_eq!(digest(&[("A", "1")], &[("A", "2")]), plain);
    assert_eq!(digest(&[], &[("A", "1"), ("A", "2")]), plain);
    assert_ne!(digest(&[], &[("A", "2"), ("A", "1")]), plain);
}

#[test]
fn a_profile_that_leads_to_another_cluster_is_another_run() {
    let (provider, name) = (provider("p", Command::Name("x".into())), ProfileName::new("fleet", "paris"));
    let digest = |server: &str| {
        let endpoint = Cluster { server: server.to_owned(), ..Cluster::default() };
        PluginKey::of_profile(&provider, &name, &endpoint)
    };
    assert_ne!(digest("https://a"), digest("https://b"));
    assert_eq!(digest("https://a"), digest("https://a"));
}
