use std::{num::NonZeroUsize, time::Duration};

use super::super::*;
use crate::{
    ClusterInfo, Command, ContextTarget, Definition, Environment, Globs, Issuer, ProviderRef,
    StoredCredential, StoredValue, testing::provider as bare,
};
use credbroker_credential::Cluster;

fn provider(name: &str) -> Provider {
    bare(name, Command::Name("plugin".into()))
}

fn entry<'a>(providers: &'a Providers, name: &str) -> &'a Entry {
    providers.entry(&ProviderRef::from(name)).unwrap()
}

/// From one provider to another one of the same name.
fn from_to(old: Provider, new: Provider) -> (Providers, ProviderUpdate) {
    let old = Providers::new([old]);
    let succession = ProviderUpdate::of(Providers::new([new]), &old);
    (old, succession)
}

#[test]
fn a_provider_that_has_not_changed_is_the_same_value_with_the_file_that_it_has_seen() {
    let (old, succession) = from_to(provider("p"), provider("p"));
    succession.commit();
    let (before, after) = (entry(&old, "p"), entry(&succession.providers, "p"));
    assert!(Arc::ptr_eq(&before.provider, &after.provider) && Arc::ptr_eq(&before.file, &after.file));
    assert!(Arc::ptr_eq(&succession.providers.access[0], &before.provider));
    assert_eq!(after.provider.state.retirement(), None);
    assert!(succession.changes.is_empty());
}

#[test]
fn every_change_of_a_stanza_is_a_new_definition() {
    let p = || provider("p");
    let cluster = |server: &str| Cluster { server: server.into(), ..Cluster::default() };
    let known = |provide_cluster_info, servers: &[&str]| Provider {
        provide_cluster_info,
        clusters: servers.iter().map(|server| cluster(server)).collect(),
        ..p()
    };
    let table = [
        ("command", p(), Provider { command: Command::Name("other".into()), ..p() }),
        ("args", p(), Provider { args: vec!["--account=b".into()], ..p() }),
        ("env", p(), Provider { env: vec![("A".into(), "b".into())], ..p() }),
        ("inherited", p(), Provider { inherited: Environment::from_iter([("A", "b")]).into(), ..p() }),
        ("caller_env", p(), Provider { caller_env: Globs::new(["A"]), ..p() }),
        ("install_hint", p(), Provider { install_hint: Some("apt".into()), ..p() }),
        ("timeout", p(), Provider { timeout: Duration::from_secs(1), ..p() }),
        ("verify", p(), Provider { verify: false, ..p() }),
        ("match", p(), Provider { cluster_info: ClusterInfo::Match, ..p() }),
        ("profiles", p(), Provider { profile_sourced: None, ..p() }),
        ("cluster", known(true, &["https://a"]), known(true, &["https://b"])),
    ];
    for (change, one, other) in table {
        let (old, succession) = from_to(one, other);
        let before = entry(&old, "p");
        assert_eq!(before.provider.state.retirement(), None, "{change}: nothing happens before the commit");
        succession.commit();
        assert_eq!(before.provider.state.retirement(), Some(Retirement::Changed), "{change}");
        let after = entry(&succession.providers, "p");
        assert_eq!(after.provider.state.retirement(), None, "{change}");
        assert_eq!(*succession.changes.changed, ["p".into()], "{change}");
    }
}

#[test]
fn a_new_context_and_another_budget_apply_without_a_new_login() {
    let cluster = |server: &str| Cluster { server: server.into(), ..Cluster::default() };
    let more = Provider { clusters: vec![cluster("https://a"), cluster("https://b")], ..provider("p") };
    let one = NonZeroUsize::MIN;
    let budget = Issuer { name: "p".into(), runs_per_second: one, concurrency: one };
    for new in [more, Provider { issuer: Arc::new(budget), ..provider("p") }] {
        let (old, succession) =
            from_to(Provider { clusters: vec![cluster("https://a")], ..provider("p") }, new);
        succession.commit();
        let (before, after) = (entry(&old, "p"), entry(&succession.providers, "p"));
        assert!(!Arc::ptr_eq(&before.provider, &after.provider) && Arc::ptr_eq(&before.file, &after.file));
        assert_eq!((before.provider.state.retirement(), before.key), (None, after.key));
        assert!(succession.changes.is_empty());
        let next = ProviderUpdate::of(Providers::new([]), &succession.providers);
        next.commit();
        assert_eq!(before.provider.state.retirement(), Some(Retirement::Removed), "they share one state");
    }
}

#[test]
fn a_user_of_one_name_in_another_kubeconfig_is_another_provider() {
    let of = |file: &str| Provider {
        definition: Some(Definition::new(file.into(), "rel", "12ab")),
        ..provider("rel")
    };
    let old = Providers::new([of("/a"), of("/b")]);
    let succession = ProviderUpdate::of(Providers::new([of("/b"), of("/c")]), &old);
    succession.commit();
    let retirement = |providers: &Providers, file: &str| {
        let same = providers.same_identity(&of(file)).unwrap();
        same.provider.state.retirement()
    };
    assert_eq!(retirement(&old, "/a"), Some(Retirement::Removed));
    assert_eq!((retirement(&old, "/b"), retirement(&succession.providers, "/c")), (None, None));
    let changes = succession.changes;
    assert_eq!((&*changes.added, &*changes.removed), (&["rel".into()][..], &["rel".into()][..]));
}

#[test]
fn the_files_are_those_of_the_active_providers() {
    let at = |name: &str, path: &str| bare(name, Command::Path(path.into()));
    let old = Providers::new([at("a", "/a"), at("b", "/b")]);
    let succession = ProviderUpdate::of(Providers::new([at("b", "/b"), at("c", "/b"), at("d", "/d")]), &old);
    let file = |name| &entry(&succession.providers, name).file;
    assert!(Arc::ptr_eq(file("b"), &entry(&old, "b").file));
    assert_eq!(succession.providers.files.len(), 3, "b has seen its file, c and d have not");
}

/// A context whose user has a token in the kubeconfig, and that user.
fn stored(token: &str) -> Provider {
    let definition = Definition::new("/kube".into(), "jane", "d");
    let credential = StoredCredential { token: Some(StoredValue::Inline(token.into())), pair: None };
    Provider { definition: Some(definition), stored: Some(credential), ..provider("jane") }
}

fn context(digest: &str, server: &str) -> Context {
    let target = ContextTarget {
        cluster: Cluster { server: server.into(), ..Cluster::default() }.into(),
        user: ("/kube".into(), "jane".into()),
        has_plugin: false,
        gives_cluster: false,
    };
    let id = ContextId { name: "paris".into(), digest: digest.into() };
    Context::new(id, "/kube".into(), "jane", Ok(target))
}

fn with_context(digest: &str, server: &str, token: &str) -> Providers {
    Providers::new([]).with_contexts([context(digest, server)], [stored(token)])
}

fn has_ended(context: &Context) -> bool {
    let mut ended = std::pin::pin!(context.ended());
    ended.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop())).is_ready()
}

#[test]
fn a_context_is_found_by_its_name_and_its_digest_only_and_its_user_by_no_name() {
    let providers = with_context("1", "https://a", "abc");
    let found = |name: &str, digest: &str| {
        providers.context(&ContextId { name: name.into(), digest: digest.into() }).map(Arc::clone)
    };
    let context = found("paris", "1").unwrap();
    assert!(providers.entry_of(&context).unwrap().provider.stored.is_some());
    assert!(found("paris", "2").is_err() && found("rome", "1").is_err());
    assert!(providers.entry(&ProviderRef::from("jane")).is_err());
    assert!(providers.names().is_empty() && providers.iter().next().is_none() && providers.files.is_empty());
}

#[test]
fn a_context_ends_when_its_digest_is_gone_or_leads_elsewhere() {
    let old = with_context("1", "https://a", "abc");
    let before = Arc::clone(old.contexts().next().unwrap());
    let same = ProviderUpdate::of(with_context("1", "https://a", "abc"), &old);
    same.commit();
    assert!(same.changes.is_empty() && !has_ended(&before));
    let after = same.providers.contexts().next().unwrap();
    assert!(Arc::ptr_eq(after, &before));
    for newer in [with_context("2", "https://a", "abc"), with_context("1", "https://b", "abc")] {
        let old = with_context("1", "https://a", "abc");
        let before = Arc::clone(old.contexts().next().unwrap());
        let update = ProviderUpdate::of(newer, &old);
        assert!(!has_ended(&before), "nothing happens before the commit");
        update.commit();
        assert!(has_ended(&before) && !has_ended(update.providers.contexts().next().unwrap()));
        assert!(!update.changes.is_empty());
    }
}

#[test]
fn a_new_token_in_the_kubeconfig_retires_the_one_before() {
    let old = with_context("1", "https://a", "abc");
    let context = Arc::clone(old.contexts().next().unwrap());
    let provider = Arc::clone(&old.entry_of(&context).unwrap().provider);
    ProviderUpdate::of(with_context("1", "https://a", "abc"), &old).commit();
    assert_eq!(provider.state.retirement(), None);
    let update = ProviderUpdate::of(with_context("1", "https://a", "def"), &old);
    update.commit();
    assert_eq!(provider.state.retirement(), Some(Retirement::Changed));
    assert!(!update.changes.is_empty() && !has_ended(&context), "it is the same context");
    ProviderUpdate::of(Providers::new([]), &update.providers).commit();
    let renewed = &update.providers.entry_of(&context).unwrap().provider;
    assert_eq!(renewed.state.retirement(), Some(Retirement::Removed));
}
