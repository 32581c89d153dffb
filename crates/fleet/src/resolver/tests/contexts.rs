//! Requests that name a context of a kubeconfig.

use super::*;
use credbroker_plugin::{
    ContextId, ContextTarget, StoredCredential, StoredValue,
    access::{Grant, Peers, Policy, Principal, ProfileGlobs, Rule, Verb},
};

fn user(name: &str, provide_cluster_info: bool) -> Provider {
    let definition = Some(Definition::new("/kube".into(), name, format!("digest of {name}")));
    let clusters = vec![cluster("https://paris", ""), cluster("https://rome", "")];
    Provider { definition, provide_cluster_info, clusters, ..provider(name, Command::Name("x".into())) }
}

fn id(name: &str) -> ContextId {
    ContextId { name: name.into(), digest: "1".into() }
}

fn context(name: &str, user: &str, gives_cluster: bool) -> Context {
    let cluster = cluster(&format!("https://{name}"), "").into();
    let target = ContextTarget {
        cluster,
        user: ("/kube".into(), user.into()),
        has_plugin: user != "stored",
        gives_cluster,
    };
    Context::new(id(name), "/kube".into(), user, Ok(target))
}

fn resolver() -> Resolver {
    let credential = StoredCredential { token: Some(StoredValue::Inline("abc".into())), pair: None };
    let stored =
        Provider { stored: Some(credential), refuses_other_identities: false, ..user("stored", false) };
    let broken = Context::new(id("broken"), "/kube".into(), "jane", Err("it names no cluster".into()));
    let contexts = [
        context("paris", "with", true),
        context("rome", "with", true),
        context("lyon", "without", false),
        context("nice", "without", false),
        context("oslo", "stored", false),
        broken,
    ];
    let providers =
        Providers::new([user("with", true), user("without", false)]).with_contexts(contexts, [stored]);
    Resolver::new(Arc::new(providers), None)
}

fn by_context(name: &str) -> CredentialRequest {
    CredentialRequest {
        source: Source::Context(id(name)),
        origin: Origin::Beside,
        ..CredentialRequest::default()
    }
}

#[test]
fn a_context_is_the_same_run_as_its_user_for_its_cluster() {
    let resolver = resolver();
    let with_cluster = |name: &str, server: &str| CredentialRequest {
        cluster: Some(Box::new(cluster(server, ""))),
        ..ask(name)
    };
    let key = |ask: CredentialRequest| {
        let key = resolver.key(&ask).unwrap();
        assert_eq!(resolver.resolve(ask).unwrap().key, key);
        key
    };
    assert_eq!(key(by_context("paris")), key(with_cluster("with", "https://paris")));
    assert_eq!(key(by_context("rome")), key(with_cluster("with", "https://rome")));
    assert_ne!(key(by_context("rome")), key(by_context("paris")));
    assert_eq!(key(by_context("lyon")), key(ask("without")));
    assert_eq!(key(by_context("nice")), key(by_context("lyon")), "the plugin does not receive the cluster");
    for (name, server) in [("paris", "https://paris"), ("lyon", "https://lyon"), ("oslo", "https://oslo")] {
        let (_, context) = resolver.resolve_in_context(by_context(name)).unwrap();
        assert_eq!(context.unwrap().target().unwrap().cluster.server, server);
    }
}

#[test]
fn a_caller_that_sends_a_cluster_sends_that_of_the_context() {
    let resolver = resolver();
    for name in ["paris", "lyon", "oslo"] {
        let sent = |server: &str| CredentialRequest {
            cluster: Some(Box::new(cluster(server, ""))),
            ..by_context(name)
        };
        assert!(resolver.resolve(sent(&format!("https://{name}/"))).is_ok());
        for server in ["https://other", ""] {
            let error = resolver.resolve(sent(server)).unwrap_err();
            assert!(matches!(error, ResolveError::ContextMismatch(..)), "{error}");
            assert!(resolver.key(&sent(server)).is_err());
        }
    }
}

#[test]
fn variables_of_callers_do_not_distinguish_a_credential_that_no_plugin_issues() {
    let resolver = resolver();
    let env = [("AWS_PROFILE".to_owned(), "prod".to_owned())].into();
    let sent = |name: &str| CredentialRequest { env: BTreeMap::clone(&env), ..by_context(name) };
    assert_eq!(resolver.key(&sent("oslo")).unwrap(), resolver.key(&by_context("oslo")).unwrap());
}

#[test]
fn what_is_unknown_forbidden_or_unusable_is_an_error() {
    let resolver = resolver();
    let error = |ask: CredentialRequest| {
        let (error, of_key) = (resolver.resolve(ask.clone()).unwrap_err(), resolver.key(&ask).unwrap_err());
        assert_eq!(error.to_string(), of_key.to_string());
        error
    };
    let other = ContextId { digest: "2".into(), ..id("paris") };
    let other = CredentialRequest { source: Source::Context(other), ..by_context("paris") };
    assert!(matches!(error(other), ResolveError::UnknownContext(name) if name == "paris"));
    assert_eq!(
        error(by_context("broken")).to_string(),
        "context `broken` cannot be used: it names no cluster"
    );
    assert!(matches!(error(ask("stored")), ResolveError::UnknownProvider(..)), "no request names its user");

    let allow = Grant {
        providers: Globs::new(["with"]),
        cluster_profiles: ProfileGlobs::new([]),
        verbs: [Verb::Get].into_iter().collect(),
    };
    let policy =
        Policy::new([Rule { name: "r".into(), peers: Peers { uids: vec![7], ..Peers::default() }, allow }]);
    let rights = Arc::new(policy.rights(&Principal { uid: Some(7), ..Principal::default() }));
    let as_other = |name: &str| CredentialRequest {
        permit: Permit::new(Arc::clone(&rights), Verb::Get),
        ..by_context(name)
    };
    assert!(
        resolver.resolve(as_other("paris")).is_ok(),
        "a rule for a provider is one for the contexts of that user"
    );
    let shape = |name: &str| error(as_other(name)).to_string().replace(name, "NAME");
    for name in ["oslo", "broken", "none"] {
        assert_eq!(shape(name), shape("lyon"), "{name}");
    }
}
