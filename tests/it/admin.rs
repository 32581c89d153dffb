//! `CredentialBrokerAdmin`: selectors, pages, providers and the broker itself.

use std::time::SystemTime;

use credbroker_proto::{
    Reason,
    v1::{self as pb, credential_broker_client::CredentialBrokerClient, report_rejected_response::Outcome},
    v1alpha1,
    v1alpha1::{credential_broker_admin_client::CredentialBrokerAdminClient, credential_selector::Selector},
};
use credbroker_test_support::{FakePlugin, Kubeconfig, private_directory, private_file};
use serde_json::json;
use tonic::{Status, transport::Channel};

use crate::harness::{InProcess, provider, reason, request};

type Admin = CredentialBrokerAdminClient<Channel>;

async fn admin(broker: &InProcess) -> Admin {
    Admin::new(broker.channel().await)
}

/// Two credentials of `aws`, for the profiles `a` and `b`, and one of `gke`.
async fn three() -> (InProcess, Admin, FakePlugin) {
    let plugin = FakePlugin::builder().token_per_run().expires_in(3600).build();
    let mut aws = provider("aws", &plugin);
    aws["callerEnv"] = json!(["AWS_PROFILE"]);
    let broker = InProcess::start(json!([aws, provider("gke", &plugin)]));
    for profile in ["a", "b"] {
        broker.get_with("aws", None, &[("AWS_PROFILE", profile)]).await.unwrap();
    }
    broker.get("gke").await.unwrap();
    let admin = admin(&broker).await;
    (broker, admin, plugin)
}

fn selecting<T: From<v1alpha1::CredentialSelector>>(selector: Selector) -> T {
    v1alpha1::CredentialSelector { selector: Some(selector) }.into()
}

async fn list(
    admin: &mut Admin,
    selector: Option<v1alpha1::CredentialSelector>,
) -> Vec<v1alpha1::CredentialState> {
    let request = v1alpha1::ListCredentialsRequest { selector, ..Default::default() };
    admin.list_credentials(request).await.unwrap().into_inner().credentials
}

async fn refresh(admin: &mut Admin, selector: Option<v1alpha1::CredentialSelector>) -> Result<u32, Status> {
    let request = v1alpha1::RefreshCredentialsRequest { selector };
    Ok(admin.refresh_credentials(request).await?.into_inner().refreshed)
}

async fn evict(admin: &mut Admin, selector: Option<v1alpha1::CredentialSelector>) -> Result<u32, Status> {
    let request = v1alpha1::EvictCredentialsRequest { selector };
    Ok(admin.evict_credentials(request).await?.into_inner().evicted)
}

fn keys(states: &[v1alpha1::CredentialState]) -> Vec<&str> {
    states.iter().map(|state| state.id.as_str()).collect()
}

#[tokio::test]
async fn a_selector_means_a_provider_one_key_or_all() {
    let (_broker, mut admin, plugin) = three().await;
    let aws = list(&mut admin, selecting(Selector::Provider("aws".into()))).await;
    assert_eq!(aws.len(), 2);
    let key = || selecting(Selector::Id(aws[0].id.clone()));
    assert_eq!(keys(&list(&mut admin, key()).await), keys(&aws[..1]));

    assert_eq!(refresh(&mut admin, key()).await.unwrap(), 1);
    assert_eq!(plugin.runs(), 4);
    assert_eq!(list(&mut admin, key()).await[0].runs, 2);
    assert_eq!(refresh(&mut admin, selecting(Selector::Provider("aws".into()))).await.unwrap(), 2);
    assert_eq!(refresh(&mut admin, selecting(Selector::All(true))).await.unwrap(), 3);
    assert_eq!(plugin.runs(), 9);

    assert_eq!(evict(&mut admin, key()).await.unwrap(), 1);
    assert_eq!(evict(&mut admin, key()).await.unwrap(), 0, "it is gone");
    assert_eq!(list(&mut admin, None).await.len(), 2);
    assert_eq!(evict(&mut admin, selecting(Selector::Provider("gke".into()))).await.unwrap(), 1);
    assert_eq!(evict(&mut admin, selecting(Selector::All(true))).await.unwrap(), 1);
    assert_eq!(list(&mut admin, None).await, []);
}

#[tokio::test]
async fn a_selector_that_selects_nothing_or_is_not_valid_is_refused_and_nothing_is_evicted() {
    let (_broker, mut admin, plugin) = three().await;
    let profile = |namespace: &str| {
        let profile = pb::ClusterProfileRef { namespace: namespace.into(), name: "paris".into() };
        selecting(Selector::ClusterProfile(profile))
    };
    for (selector, expected) in [
        (None, Reason::InvalidRequest),
        (Some(v1alpha1::CredentialSelector::default()), Reason::InvalidRequest),
        (selecting(Selector::All(false)), Reason::InvalidRequest),
        (selecting(Selector::Id("gke".into())), Reason::InvalidRequest),
        (profile(""), Reason::InvalidRequest),
        (profile("fleet"), Reason::HubNotConfigured),
        (selecting(Selector::Provider(String::new())), Reason::UnknownProvider),
    ] {
        let refused = evict(&mut admin, selector.clone()).await.unwrap_err();
        assert_eq!(reason(&refused), Some(expected), "{selector:?}");
        let refused = refresh(&mut admin, selector.clone()).await.unwrap_err();
        assert_eq!(reason(&refused), Some(expected), "{selector:?}");
    }
    assert_eq!((list(&mut admin, None).await.len(), plugin.runs()), (3, 3));
}

#[tokio::test]
async fn pages_have_the_size_that_is_asked_for_and_tokens_belong_to_their_list() {
    let (_broker, mut admin, _) = three().await;
    let all = list(&mut admin, None).await;
    let page = |page_size: i32, page_token: Option<&str>| v1alpha1::ListCredentialsRequest {
        page_size,
        page_token: page_token.map(str::to_owned),
        ..v1alpha1::ListCredentialsRequest::default()
    };
    let (mut found, mut token) = (Vec::new(), None);
    for expected in [1, 1, 1] {
        let answer = admin.list_credentials(page(1, token.as_deref())).await.unwrap().into_inner();
        assert_eq!(answer.credentials.len(), expected);
        found.extend(answer.credentials);
        token = answer.next_page_token;
    }
    assert_eq!((keys(&found), token), (keys(&all), None));
    for size in [0, i32::MAX] {
        let answer = admin.list_credentials(page(size, None)).await.unwrap().into_inner();
        assert_eq!((answer.credentials.len(), answer.next_page_token), (3, None));
    }

    let providers = v1alpha1::ListProvidersRequest { page_size: 1, ..Default::default() };
    let first = admin.list_providers(providers).await.unwrap().into_inner();
    assert_eq!((first.providers.len(), first.providers[0].name.as_str()), (1, "aws"));
    let page_token = first.next_page_token.clone();
    let second =
        admin.list_providers(v1alpha1::ListProvidersRequest { page_size: 1, page_token }).await.unwrap();
    assert_eq!(second.get_ref().providers[0].name, "gke");
    assert_eq!(second.get_ref().next_page_token, None);

    let own = admin.list_credentials(page(1, None)).await.unwrap().into_inner().next_page_token;
    let of_another_selector = v1alpha1::ListCredentialsRequest {
        selector: selecting(Selector::Provider("aws".into())),
        ..page(1, own.as_deref())
    };
    for wrong in
        [page(-1, None), page(0, Some("x")), page(0, first.next_page_token.as_deref()), of_another_selector]
    {
        let refused = admin.list_credentials(wrong).await.unwrap_err();
        assert_eq!(reason(&refused), Some(Reason::InvalidRequest));
    }
    let (list, _position) = first.next_page_token.as_deref().unwrap().rsplit_once('.').unwrap();
    for page_token in [own, Some(format!("{list}.aws"))] {
        let wrong = v1alpha1::ListProvidersRequest { page_token, ..Default::default() };
        assert_eq!(reason(&admin.list_providers(wrong).await.unwrap_err()), Some(Reason::InvalidRequest));
    }
}

#[tokio::test]
async fn providers_are_listed_by_name_and_definition_on_every_page() {
    let (directory, plugin) = (private_directory(), FakePlugin::builder().token("t").build());
    let files: Vec<_> = (0..10).map(|number| directory.path().join(number.to_string())).collect();
    for file in &files {
        let stanza = plugin.exec_stanza();
        private_file(file, &Kubeconfig::new().exec_user("b", &stanza).exec_user("a", &stanza).to_yaml());
    }
    let broker = InProcess::with(json!({"kubeconfigs": files}), &[]);
    let mut admin = admin(&broker).await;
    let (mut listed, mut page_token) = (Vec::new(), None);
    loop {
        let page = v1alpha1::ListProvidersRequest { page_size: 3, page_token };
        let page = admin.list_providers(page).await.unwrap().into_inner();
        listed.extend(page.providers.into_iter().map(|state| (state.name, state.definition)));
        page_token = page.next_page_token;
        if page_token.is_none() {
            break;
        }
    }
    assert_eq!(listed.len(), 20);
    // All have the same stanza.
    assert!(listed.is_sorted() && listed[0].1 == listed[19].1, "{listed:#?}");
}

#[tokio::test]
async fn providers_are_listed_with_what_keeps_them_from_running() {
    let plugin = FakePlugin::builder().token("t").build();
    let mut missing = provider("missing", &plugin);
    missing["execConfig"]["command"] = json!("/nonexistent/plugin");
    let broker = InProcess::start(json!([missing, provider("gke", &plugin)]));
    broker.get("missing").await.unwrap_err();
    let mut admin = admin(&broker).await;
    let listed = admin.list_providers(v1alpha1::ListProvidersRequest::default()).await.unwrap().into_inner();
    let [gke, missing] = listed.providers.as_slice() else { panic!("{listed:?}") };
    assert_eq!((gke.name.as_str(), &gke.failure, &gke.definition), ("gke", &None, &None));
    assert!(gke.serves_cluster_profiles && gke.command.ends_with("plugin"), "{gke:?}");
    assert_eq!(missing.failure.as_ref().map(pb::Failure::reason), Some(pb::ErrorReason::PluginNotFound));
}

#[tokio::test]
async fn the_broker_describes_itself() {
    let before = SystemTime::now();
    let broker = InProcess::idle();
    let mut admin = admin(&broker).await;
    let info = admin.get_broker_info(v1alpha1::GetBrokerInfoRequest {}).await.unwrap().into_inner();
    assert_eq!(info.version, env!("CARGO_PKG_VERSION"));
    let started = SystemTime::try_from(info.start_time.unwrap()).unwrap();
    assert!(before <= started && started <= SystemTime::now());
    assert_eq!(info.sockets, [broker.socket().display().to_string()]);
    let [file] = info.config_files.as_slice() else { panic!("{info:?}") };
    assert!(std::path::Path::new(file).is_file(), "{file}");
    assert_eq!(info.hub, None, "no hub is configured");
    assert!(info.commit.is_none_or(|commit| commit.len() >= 40));
}

#[tokio::test]
async fn a_report_says_whether_the_credential_was_replaced_and_whether_it_is_known() {
    let (broker, mut admin, plugin) = three().await;
    let mut rpc = CredentialBrokerClient::new(broker.channel().await);
    let old = broker.get("gke").await.unwrap().generation().to_owned();
    refresh(&mut admin, selecting(Selector::Provider("gke".into()))).await.unwrap();
    let new = broker.get("gke").await.unwrap().generation().to_owned();
    let runs = plugin.runs();
    for (generation, outcome) in [
        (old.as_str(), Outcome::AlreadyReplaced),
        ("from-before-a-restart", Outcome::UnknownGeneration),
        (&new, Outcome::TooEarly),
    ] {
        let r#ref = request("gke", None, &[]).r#ref;
        let report = pb::ReportRejectedRequest { r#ref, generation: generation.to_owned() };
        let answer = rpc.report_rejected(report).await.unwrap().into_inner();
        assert_eq!(
            (answer.outcome(), answer.credential.unwrap().generation),
            (outcome, new.clone()),
            "{generation}"
        );
        assert_eq!(answer.retry_after.is_some(), outcome == Outcome::TooEarly);
    }
    assert_eq!(plugin.runs(), runs);
    let gke = list(&mut admin, selecting(Selector::Provider("gke".into()))).await.remove(0);
    let rejections = gke.rejections.unwrap();
    assert_eq!((rejections.verifications, rejections.last_verdict), (0, None), "no API server was asked");
}

#[tokio::test]
async fn a_definition_that_the_broker_does_not_know_is_never_served_from_the_cache() {
    let (broker, _admin, _plugin) = three().await;
    let mut rpc = CredentialBrokerClient::new(broker.channel().await);
    let definition = Some("0123456789abcdef".to_owned());
    let provider = pb::ProviderRef { name: "gke".into(), definition };
    let source = Some(pb::credential_ref::Source::Provider(provider));
    let r#ref = Some(pb::CredentialRef { source, ..Default::default() });
    let get = pb::GetCredentialRequest { r#ref: r#ref.clone(), ..Default::default() };
    let refused = rpc.get_credential(get).await.unwrap_err();
    assert_eq!(reason(&refused), Some(Reason::UnknownDefinition));
    let refused = rpc.watch_credential(pb::WatchCredentialRequest { r#ref }).await.unwrap_err();
    assert_eq!(reason(&refused), Some(Reason::UnknownDefinition));
}
