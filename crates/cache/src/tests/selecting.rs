//! Lists, refreshes and evictions of selected keys.

use super::{Script::*, *};
use crate::KeyStatus;
use credbroker_plugin::Definition;

fn paris() -> ProfileName {
    profile_name("paris")
}

/// A key of `provider`.
fn spec_of(provider: &str, key: &str) -> PluginSpec {
    let provider = Arc::new(test_provider(provider, Command::Path("/fake".into())));
    PluginSpec { provider, ..spec(key) }
}

/// A key of the provider `aws` that a kubeconfig defines.
fn spec_defined(key: &str) -> PluginSpec {
    let spec = spec_of("aws", key);
    let definition = Some(definition());
    let provider = Arc::new(Provider { definition, ..Provider::clone(&spec.provider) });
    PluginSpec { provider, ..spec }
}

fn definition() -> Definition {
    Definition::new("/home/jane/.kube/config".into(), "aws", "12ab")
}

/// A key of `fleet/paris`.
fn spec_for_paris(key: &str) -> PluginSpec {
    PluginSpec { target: Some(target("paris", "paris")), ..spec_of("gke", key) }
}

/// Two keys of `aws`, two of `gke` for `fleet/paris`, and another one of `gke`.
async fn filled() -> Setup {
    let setup = setup(&[Token(mins(60))]);
    let specs = [
        spec_of("aws", "one"),
        spec_defined("two"),
        spec_for_paris("paris 1"),
        spec_for_paris("paris 2"),
        spec_of("gke", "other"),
    ];
    for spec in specs {
        setup.cache.get(spec, &Request::default()).await.unwrap();
    }
    setup
}

fn key(text: &str) -> Selector {
    Selector::Key(spec(text).key.to_string().parse().unwrap())
}

/// Each selector, and the first bytes of the keys that it selects.
fn selectors() -> [(Selector, &'static [&'static str]); 9] {
    let defined = |provider: &str, definition: &str| Selector::Definition(provider.into(), definition.into());
    [
        (defined("aws", &definition().digest), &["two"]),
        (defined("gke", &definition().digest), &[]),
        (Selector::All, &["one", "two", "other", "paris 1", "paris 2"]),
        (of("aws"), &["one", "two"]),
        (of("gke"), &["other", "paris 1", "paris 2"]),
        (of("azure"), &[]),
        (Selector::ClusterProfile(paris()), &["paris 1", "paris 2"]),
        (Selector::ClusterProfile(profile_name("tokyo")), &[]),
        (key("two"), &["two"]),
    ]
}

fn names(page: &[KeyStatus]) -> Vec<String> {
    let name = |status: &KeyStatus| String::from_utf8(status.spec.key.0.to_vec()).unwrap();
    page.iter().map(|status| name(status).trim_end_matches('\0').to_owned()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_list_has_the_selected_keys_in_pages_and_in_order() {
    let setup = filled().await;
    for (selector, expected) in selectors() {
        assert_eq!(names(&setup.cache.list(&selector, None, usize::MAX)), expected, "{selector:?}");
        let (mut all, mut after) = (Vec::new(), None);
        loop {
            let page = setup.cache.list(&selector, after.as_ref(), 1);
            let Some(last) = page.last() else { break };
            after = Some(last.position());
            all.extend(names(&page));
        }
        assert_eq!(all, expected, "{selector:?}, one key a page");
    }
}

#[tokio::test(start_paused = true)]
async fn an_eviction_forgets_the_selected_keys_and_no_other() {
    for (selector, expected) in selectors() {
        let setup = filled().await;
        let before = names(&setup.cache.list(&Selector::All, None, usize::MAX));
        assert_eq!(setup.cache.evict(&selector), expected.len(), "{selector:?}");
        let left = names(&setup.cache.list(&Selector::All, None, usize::MAX));
        let expected: Vec<_> = before.into_iter().filter(|key| !expected.contains(&&**key)).collect();
        assert_eq!(left, expected, "{selector:?}");
        assert_eq!(
            setup.cache.profile_states().len(),
            expected.iter().filter(|key| key.contains("paris")).count()
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_refresh_runs_the_plugins_of_the_selected_keys_and_of_no_other() {
    for (selector, expected) in selectors() {
        let setup = filled().await;
        assert_eq!(setup.cache.refresh(&selector).await, expected.len(), "{selector:?}");
        let refreshed = setup.cache.list(&Selector::All, None, usize::MAX);
        let refreshed: Vec<_> = refreshed.into_iter().filter(|status| status.runs == 2).collect();
        assert_eq!(names(&refreshed), expected, "{selector:?}");
    }
}
