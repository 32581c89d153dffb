//! Watch, report, list, refresh and evict, over the wire.

use std::{sync::Arc, time::Duration};

use credbroker_proto::{
    Reason,
    v1::{self as pb, credential_broker_client::CredentialBrokerClient, report_rejected_response::Outcome},
    v1alpha1,
    v1alpha1::{
        credential_broker_admin_client::CredentialBrokerAdminClient, credential_selector::Selector,
        credential_state::State,
    },
};
use credbroker_test_support::FakePlugin;
use serde_json::json;
use tokio::time::timeout;
use tonic::{Code, Streaming, transport::Channel};
use tonic_types::StatusExt as _;

use crate::harness::{Ahead, InProcess, provider, reason, request};

type Rpc = CredentialBrokerClient<Channel>;

async fn rpc(broker: &InProcess) -> Rpc {
    CredentialBrokerClient::new(broker.channel().await)
}

type Admin = CredentialBrokerAdminClient<Channel>;

async fn admin(broker: &InProcess) -> Admin {
    CredentialBrokerAdminClient::new(broker.channel().await)
}

async fn list(admin: &mut Admin) -> Vec<v1alpha1::CredentialState> {
    admin
        .list_credentials(v1alpha1::ListCredentialsRequest::default())
        .await
        .unwrap()
        .into_inner()
        .credentials
}

fn selecting<T: From<v1alpha1::CredentialSelector>>(selector: Selector) -> T {
    v1alpha1::CredentialSelector { selector: Some(selector) }.into()
}

async fn watch(rpc: &mut Rpc, name: &str) -> Streaming<pb::WatchCredentialResponse> {
    let r#ref = request(name, None, &[]).r#ref;
    rpc.watch_credential(pb::WatchCredentialRequest { r#ref }).await.unwrap().into_inner()
}

async fn token(watch: &mut Streaming<pb::WatchCredentialResponse>) -> String {
    let message = timeout(Duration::from_secs(30), watch.message()).await.expect("a message in time");
    message.unwrap().unwrap().credential.unwrap().token.unwrap()
}

#[tokio::test]
async fn a_watch_brings_the_credential_now_and_then_each_rotation() {
    let plugin = FakePlugin::builder().token_per_run().expires_in(8).build();
    let broker = InProcess::start(json!([provider("cloud", &plugin)]));
    let mut rpc = rpc(&broker).await;
    let mut watch = watch(&mut rpc, "cloud").await;
    for run in 1..=3 {
        assert_eq!(token(&mut watch).await, format!("token-{run}"));
    }
    let held = list(&mut admin(&broker).await).await;
    assert_eq!((held[0].watches, held[0].runs), (1, 3));
}

#[tokio::test]
async fn a_refresh_reaches_every_watch_and_an_eviction_ends_it() {
    let plugin = FakePlugin::builder().token_per_run().expires_in(3600).build();
    let broker = InProcess::start(json!([provider("cloud", &plugin)]));
    let mut rpc = rpc(&broker).await;
    let mut watches = Vec::new();
    for _ in 0..100 {
        watches.push(watch(&mut rpc, "cloud").await);
    }
    for watch in &mut watches {
        assert_eq!(token(watch).await, "token-1");
    }
    let mut admin = admin(&broker).await;
    let selector = selecting(Selector::Provider("cloud".into()));
    let refreshed =
        admin.refresh_credentials(v1alpha1::RefreshCredentialsRequest { selector }).await.unwrap();
    assert_eq!(*refreshed.get_ref(), v1alpha1::RefreshCredentialsResponse { refreshed: 1 });
    let held = list(&mut admin).await;
    assert_eq!((held[0].state(), held[0].runs), (State::Valid, 2));
    for watch in &mut watches {
        assert_eq!(token(watch).await, "token-2");
    }
    let request = v1alpha1::EvictCredentialsRequest { selector: selecting(Selector::All(true)) };
    assert_eq!(admin.evict_credentials(request).await.unwrap().into_inner().evicted, 1);
    for watch in &mut watches {
        let ended = watch.message().await.unwrap_err();
        assert_eq!((ended.code(), reason(&ended)), (Code::Unavailable, Some(Reason::ProviderChanged)));
        assert_eq!(
            ended.message(),
            "provider `cloud`: the broker has evicted the credential; try again to get the next one (PROVIDER_CHANGED)"
        );
    }
    for watch in &mut watches {
        *watch = self::watch(&mut rpc, "cloud").await;
        assert_eq!(token(watch).await, "token-3");
    }
    assert_eq!(plugin.runs(), 3);
}

#[tokio::test]
async fn the_watch_after_the_last_is_refused_and_a_get_on_that_connection_passes() {
    let plugin = FakePlugin::builder().token("t").expires_in(3600).build();
    let broker = InProcess::start(json!([provider("cloud", &plugin)]));
    let mut rpc = rpc(&broker).await;
    let mut watches = Vec::new();
    for _ in 0..1000 {
        watches.push(watch(&mut rpc, "cloud").await);
    }
    let r#ref = request("cloud", None, &[]).r#ref;
    let refused = rpc.watch_credential(pb::WatchCredentialRequest { r#ref }).await.unwrap_err();
    assert_eq!((refused.code(), reason(&refused)), (Code::ResourceExhausted, Some(Reason::Overloaded)));
    assert!(refused.message().contains("1000 watches"), "{}", refused.message());
    assert!(rpc.get_credential(request("cloud", None, &[])).await.is_ok());
    watches.pop();
    let again = async {
        loop {
            let r#ref = request("cloud", None, &[]).r#ref;
            if rpc.watch_credential(pb::WatchCredentialRequest { r#ref }).await.is_ok() {
                break;
            }
        }
    };
    timeout(Duration::from_secs(30), again).await.expect("the place of a watch that ended is given back");
}

#[tokio::test]
async fn draining_ends_watches_with_the_reason_and_holds_nothing_up() {
    let plugin = FakePlugin::builder().token("t").expires_in(3600).build();
    let broker = InProcess::start(json!([provider("cloud", &plugin)]));
    let mut rpc = rpc(&broker).await;
    let mut watch = watch(&mut rpc, "cloud").await;
    token(&mut watch).await;
    let ending = async { tokio::join!(broker.stop(), watch.message()) };
    let (drained, ended) = timeout(Duration::from_secs(30), ending).await.expect("the drain ends");
    assert_eq!(drained, credbroker::app::Drained::Whole);
    let ended = ended.unwrap_err();
    assert_eq!((ended.code(), reason(&ended)), (Code::Unavailable, Some(Reason::Draining)));
}

#[tokio::test]
async fn a_watch_whose_first_credential_fails_ends_with_its_status() {
    let plugin = FakePlugin::builder().exit_code(3).build();
    let broker = InProcess::start(json!([provider("cloud", &plugin)]));
    let mut rpc = rpc(&broker).await;
    let ended = watch(&mut rpc, "cloud").await.message().await.unwrap_err();
    assert_eq!(reason(&ended), Some(Reason::PluginExit));
    assert!(ended.get_details_retry_info().is_some());
    let held = &list(&mut admin(&broker).await).await[0];
    assert_eq!((held.state(), held.runs), (State::Failed, 1));
    let failure = held.last_failure.as_ref().unwrap();
    assert_eq!((failure.reason(), held.failed_attempts), (pb::ErrorReason::PluginExit, 1));
}

#[tokio::test]
async fn a_fresh_generation_that_is_reported_is_not_asked_for_again_at_once() {
    let plugin = FakePlugin::builder().token_per_run().expires_in(3600).build();
    let broker = InProcess::start(json!([provider("cloud", &plugin)]));
    let mut rpc = rpc(&broker).await;
    let got = rpc.get_credential(request("cloud", None, &[])).await.unwrap().into_inner().credential.unwrap();
    let r#ref = request("cloud", None, &[]).r#ref;
    let report = pb::ReportRejectedRequest { r#ref: r#ref.clone(), generation: got.generation.clone() };
    let answer = rpc.report_rejected(report).await.unwrap().into_inner();
    assert_eq!(answer.outcome(), Outcome::TooEarly);
    assert!((1..=10).contains(&answer.retry_after.unwrap().seconds), "{answer:?}");
    assert_eq!((answer.credential, plugin.runs()), (Some(got), 1));
    let nothing = pb::ReportRejectedRequest { r#ref, generation: String::new() };
    assert_eq!(rpc.report_rejected(nothing).await.unwrap_err().code(), Code::InvalidArgument);
}

#[tokio::test]
async fn a_report_of_a_credential_that_is_not_too_recent_runs_the_plugin_and_says_what_it_printed() {
    let with = |token: &str| FakePlugin::builder().token(token).expires_at("2100-01-01T00:00:00Z");
    let (plugin, clock) = (with("first").build(), Arc::new(Ahead::default()));
    let providers = json!({"providers": [provider("cloud", &plugin)]});
    let broker = InProcess::with_clock(providers, &[], Arc::<Ahead>::clone(&clock));
    let mut rpc = rpc(&broker).await;
    let request = || request("cloud", None, &[]);
    let first = rpc.get_credential(request()).await.unwrap().into_inner().credential.unwrap();
    let mut report = async |generation: &str| {
        let r#ref = request().r#ref;
        let report = pb::ReportRejectedRequest { r#ref, generation: generation.to_owned() };
        let answer = rpc.report_rejected(report).await.unwrap().into_inner();
        (answer.outcome(), answer.credential.unwrap(), answer.retry_after)
    };

    clock.put(20);
    let (outcome, same, retry_after) = report(&first.generation).await;
    assert_eq!((outcome, &same.generation, retry_after), (Outcome::NothingNewer, &first.generation, None));
    assert_eq!(plugin.runs(), 2);

    plugin.becomes(&with("second"));
    clock.put(600);
    let (outcome, second, retry_after) = report(&first.generation).await;
    assert_eq!((outcome, second.token(), retry_after), (Outcome::Replaced, "second", None));
    assert_ne!(second.generation, first.generation);

    let (outcome, again, retry_after) = report(&first.generation).await;
    assert_eq!((outcome, again.generation, retry_after), (Outcome::AlreadyReplaced, second.generation, None));
    assert_eq!(plugin.runs(), 3);
}

#[tokio::test]
async fn an_unknown_provider_is_named_by_every_call() {
    let broker = InProcess::idle();
    let mut admin = admin(&broker).await;
    let selector = || selecting(Selector::Provider("none".into()));
    let list = v1alpha1::ListCredentialsRequest { selector: selector(), ..Default::default() };
    for status in [
        admin.list_credentials(list).await.unwrap_err(),
        admin
            .refresh_credentials(v1alpha1::RefreshCredentialsRequest { selector: selector() })
            .await
            .unwrap_err(),
        admin
            .evict_credentials(v1alpha1::EvictCredentialsRequest { selector: selector() })
            .await
            .unwrap_err(),
    ] {
        assert_eq!(reason(&status), Some(Reason::UnknownProvider));
    }
}
