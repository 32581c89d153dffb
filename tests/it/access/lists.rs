//! Lists show, and commands reach, only what a peer has a right to.

use credbroker_proto::v1alpha1::{
    self, credential_broker_admin_client::CredentialBrokerAdminClient, credential_selector::Selector,
};

use super::*;

type Admin = CredentialBrokerAdminClient<Channel>;

fn selecting(selector: Selector) -> v1alpha1::CredentialSelector {
    v1alpha1::CredentialSelector { selector: Some(selector) }
}

async fn evict(admin: &mut Admin, selector: Selector) -> Result<u32, Status> {
    let request = v1alpha1::EvictCredentialsRequest { selector: Some(selecting(selector)) };
    Ok(admin.evict_credentials(request).await?.into_inner().evicted)
}

async fn refresh(admin: &mut Admin, selector: Selector) -> Result<u32, Status> {
    let request = v1alpha1::RefreshCredentialsRequest { selector: Some(selecting(selector)) };
    Ok(admin.refresh_credentials(request).await?.into_inner().refreshed)
}

/// Names of providers in the list of credentials, and in that of providers.
async fn listed(admin: &mut Admin) -> (Vec<String>, Vec<String>) {
    let credentials = admin.list_credentials(v1alpha1::ListCredentialsRequest::default()).await.unwrap();
    let providers = admin.list_providers(v1alpha1::ListProvidersRequest::default()).await.unwrap();
    let credentials = credentials.into_inner().credentials.into_iter().map(|state| state.provider);
    let providers = providers.into_inner().providers.into_iter().map(|state| state.name);
    (credentials.collect(), providers.collect())
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// Lets the user of this test do this and nothing else.
async fn allow(broker: &InProcess, plugin: &FakePlugin, providers: &[&str], verbs: &[&str]) {
    change(broker, plugin, &rule(&json!({"providers": providers, "verbs": verbs}))).await;
}

/// A broker with a credential of each provider, under rules that allow these verbs for these providers.
async fn filled(providers: &[&str], verbs: &[&str]) -> (InProcess, Admin, FakePlugin) {
    let (broker, plugin) = broker(&rule(&json!({"providers": ["*"], "verbs": ["get", "admin"]})));
    for name in ["a", "b", "ab"] {
        broker.get(name).await.unwrap();
    }
    allow(&broker, &plugin, providers, verbs).await;
    let admin = Admin::new(broker.channel().await);
    (broker, admin, plugin)
}

#[tokio::test]
async fn lists_show_only_what_the_peer_may_see() {
    for verb in ["list", "admin"] {
        let (_broker, mut admin, _plugin) = filled(&["a*"], &[verb]).await;
        assert_eq!(listed(&mut admin).await, (names(&["a", "ab"]), names(&["a", "ab"])), "{verb}");
        let request = v1alpha1::ListCredentialsRequest { with_id_parts: true, ..Default::default() };
        let explained = admin.list_credentials(request).await.unwrap().into_inner().credentials;
        assert!(explained.iter().all(|state| !state.id_parts.is_empty()), "{verb}");
        assert_eq!(
            explained.into_iter().map(|state| state.provider).collect::<Vec<_>>(),
            names(&["a", "ab"])
        );
        admin.get_broker_info(v1alpha1::GetBrokerInfoRequest::default()).await.unwrap();
        for name in ["b", "c"] {
            let selector = Some(selecting(Selector::Provider(name.into())));
            let request = v1alpha1::ListCredentialsRequest { selector, ..Default::default() };
            assert_eq!(denied(&admin.list_credentials(request).await.unwrap_err()), DENIED, "{name}");
        }
    }
}

/// The page of one provider that follows `page_token`, and its own token.
async fn page(
    admin: &mut Admin,
    page_token: Option<String>,
) -> Result<(Vec<String>, Option<String>), Status> {
    let request = v1alpha1::ListProvidersRequest { page_size: 1, page_token };
    let v1alpha1::ListProvidersResponse { providers, next_page_token } =
        admin.list_providers(request).await?.into_inner();
    Ok((providers.into_iter().map(|state| state.name).collect(), next_page_token))
}

#[tokio::test]
async fn a_page_token_does_not_show_whether_a_provider_exists() {
    let (_broker, mut admin, _plugin) = filled(&["a*"], &["list"]).await;
    let (first, token) = page(&mut admin, None).await.unwrap();
    assert_eq!(first, ["a"]);
    let token = token.unwrap();
    let forged = |name: &str| token.replace("\"a\"", &format!("\"{name}\""));
    assert_ne!(forged("b"), token);
    // Forbidden; unknown and allowed; unknown and forbidden.
    for (name, follows) in [("b", vec![]), ("aa", names(&["ab"])), ("aaa", names(&["ab"])), ("c", vec![])] {
        assert_eq!(page(&mut admin, Some(forged(name))).await.unwrap(), (follows, None), "{name}");
    }
}

#[tokio::test]
async fn the_next_page_of_providers_is_found_without_the_one_that_ended_the_last() {
    let (broker, mut admin, plugin) = filled(&["*"], &["list"]).await;
    let (_, after_a) = page(&mut admin, None).await.unwrap();
    let (second, after_ab) = page(&mut admin, after_a.clone()).await.unwrap();
    assert_eq!(second, ["ab"]);
    let access = rule(&json!({"providers": ["*"], "verbs": ["list"]}));
    let others: Vec<_> = ["0", "b"].into_iter().map(|name| provider(name, &plugin)).collect();
    broker.reconfigure(json!({"providers": others, "access": access})).await;
    for token in [after_a, after_ab] {
        assert_eq!(page(&mut admin, token.clone()).await.unwrap(), (names(&["b"]), None), "{token:?}");
    }
}

#[tokio::test]
async fn the_admin_service_needs_list_or_admin() {
    let (_broker, mut admin, _plugin) = filled(&["*"], &["get", "watch", "report"]).await;
    let refusals = [
        admin.list_credentials(v1alpha1::ListCredentialsRequest::default()).await.map(drop),
        admin.list_providers(v1alpha1::ListProvidersRequest::default()).await.map(drop),
        admin.get_broker_info(v1alpha1::GetBrokerInfoRequest::default()).await.map(drop),
        evict(&mut admin, Selector::All(true)).await.map(drop),
        refresh(&mut admin, Selector::All(true)).await.map(drop),
    ];
    for refusal in refusals {
        assert_eq!(denied(&refusal.unwrap_err()), DENIED);
    }
    let (_broker, mut admin, _plugin) = filled(&["*"], &["list"]).await;
    for refusal in
        [evict(&mut admin, Selector::All(true)).await, refresh(&mut admin, Selector::All(true)).await]
    {
        assert_eq!(denied(&refusal.unwrap_err()), DENIED, "to list is not to administer");
    }
}

#[tokio::test]
async fn all_means_all_that_the_peer_may_administer() {
    let (broker, mut admin, plugin) = filled(&["a*"], &["admin"]).await;
    assert_eq!(refresh(&mut admin, Selector::All(true)).await.unwrap(), 2);
    assert_eq!(plugin.runs(), 5);
    assert_eq!(evict(&mut admin, Selector::Provider("a".into())).await.unwrap(), 1);
    assert_eq!(evict(&mut admin, Selector::All(true)).await.unwrap(), 1);
    for name in ["b", "c"] {
        let by_name = Selector::Provider(name.into());
        assert_eq!(denied(&evict(&mut admin, by_name.clone()).await.unwrap_err()), DENIED, "{name}");
        assert_eq!(denied(&refresh(&mut admin, by_name).await.unwrap_err()), DENIED, "{name}");
    }
    allow(&broker, &plugin, &["*"], &["list"]).await;
    assert_eq!(listed(&mut admin).await.0, names(&["b"]), "it was not evicted");
}

#[tokio::test]
async fn a_key_that_the_peer_may_not_see_is_a_key_that_does_not_exist() {
    let (broker, mut admin, plugin) = filled(&["*"], &["list"]).await;
    let all = admin.list_credentials(v1alpha1::ListCredentialsRequest::default()).await.unwrap().into_inner();
    let key = all.credentials.iter().find(|state| state.provider == "b").unwrap().id.clone();
    allow(&broker, &plugin, &["a"], &["admin"]).await;
    assert_eq!(evict(&mut admin, Selector::Id(key)).await.unwrap(), 0);
    assert_eq!(evict(&mut admin, Selector::Id("ab".repeat(6))).await.unwrap(), 0);
}
