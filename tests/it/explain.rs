//! What `ListCredentials` explains: why two credentials are not one, what bounds them, and when the next run is. No value
//! leaves the broker, but for those that select the account.

use std::collections::{BTreeMap, BTreeSet};

use credbroker_proto::{
    v1::{self as pb},
    v1alpha1::{
        self,
        credential_broker_admin_client::CredentialBrokerAdminClient,
        credential_selector::Selector,
        credential_state::{Bound, Cause},
        id_part::{Kind, Origin},
    },
};
use credbroker_test_support::FakePlugin;
use prost::Message as _;
use serde_json::{Value, json};

use crate::harness::{InProcess, provider};

/// In every value that must stay in the broker.
const CANARY: &str = "c4n4ry";

async fn explain(broker: &InProcess, name: &str) -> Vec<v1alpha1::CredentialState> {
    let mut admin = CredentialBrokerAdminClient::new(broker.channel().await);
    let selector = Some(v1alpha1::CredentialSelector { selector: Some(Selector::Provider(name.into())) });
    let request = v1alpha1::ListCredentialsRequest { selector, with_id_parts: true, ..Default::default() };
    let mut answer = admin.list_credentials(request).await.unwrap().into_inner();
    assert_eq!(answer.next_page_token, None);
    // The account is for the own user.
    answer.credentials.iter_mut().for_each(|held| held.account.clear());
    let bytes = answer.encode_to_vec();
    let found = bytes.windows(CANARY.len()).any(|window| window == CANARY.as_bytes());
    assert!(!found, "a value left the broker: {answer:?}");
    answer.credentials
}

fn parts(explained: &v1alpha1::CredentialState) -> BTreeMap<(i32, &str), (Origin, u32)> {
    let parts = explained.id_parts.iter();
    parts
        .map(|part| {
            ((part.kind, part.name.as_deref().unwrap_or_default()), (part.origin(), part.value_number))
        })
        .collect()
}

/// A provider with a canary in each value that a key has.
fn full(plugin: &FakePlugin) -> Value {
    let mut full = provider("full", plugin);
    full["execConfig"]["args"] = json!(["token", format!("--secret={CANARY}")]);
    full["execConfig"]["env"] = json!([{"name": "OWN", "value": CANARY}]);
    full["execConfig"]["provideClusterInfo"] = json!(true);
    full["passEnv"] = json!(["PASSED"]);
    full["callerEnv"] = json!(["AWS_PROFILE", "AWS_REGION"]);
    full
}

fn cluster() -> pb::Cluster {
    pb::Cluster {
        server: "https://paris".into(),
        proxy_url: Some(format!("http://jane:{CANARY}@proxy")),
        certificate_authority_data: Some(CANARY.into()),
        config: Some(format!("{{\"a\":\"{CANARY}\"}}").into()),
        ..pb::Cluster::default()
    }
}

async fn two() -> (InProcess, FakePlugin) {
    let plugin = FakePlugin::builder().token(CANARY).expires_in(3600).build();
    let sections = json!({"providers": [full(&plugin)]});
    let broker = InProcess::with(sections, &[("PASSED", CANARY), ("LANG", CANARY), ("OTHER", CANARY)]);
    let callers: [&[_]; 2] =
        [&[("AWS_PROFILE", CANARY)], &[("AWS_PROFILE", "other-c4n4ry"), ("AWS_REGION", CANARY)]];
    for variables in callers {
        broker.get_with("full", Some(cluster()), variables).await.unwrap();
    }
    (broker, plugin)
}

#[tokio::test]
async fn the_parts_of_two_keys_have_their_origins_and_no_value_leaves_the_broker() {
    let (broker, plugin) = two().await;
    let explained = explain(&broker, "full").await;
    let [one, other] = explained.as_slice() else { panic!("{explained:?}") };
    let (mut one, mut other) = (parts(one), parts(other));
    if one.len() > other.len() {
        std::mem::swap(&mut one, &mut other);
    }
    let variable = |name| (i32::from(Kind::Variable), name);
    for (part, origin) in [
        ((Kind::Provider.into(), ""), Origin::Stanza),
        ((Kind::Command.into(), ""), Origin::Stanza),
        ((Kind::Argument.into(), "2"), Origin::Stanza),
        (variable("OWN"), Origin::Stanza),
        (variable("PATH"), Origin::Always),
        (variable("LANG"), Origin::Always),
        (variable("PASSED"), Origin::PassEnv),
        (variable("AWS_PROFILE"), Origin::CallerEnv),
        (variable("AWS_REGION"), Origin::CallerEnv),
        ((Kind::Cluster.into(), "server"), Origin::Caller),
        ((Kind::Cluster.into(), "proxy-url"), Origin::Caller),
        ((Kind::Cluster.into(), "certificate-authority-data"), Origin::Caller),
        ((Kind::Cluster.into(), "config"), Origin::Caller),
    ] {
        assert_eq!(other.get(&part).map(|(origin, _)| *origin), Some(origin), "{part:?}");
    }
    assert!(!other.contains_key(&variable("OTHER")), "it does not reach the plugin");
    let differ: BTreeSet<_> = other.iter().filter(|(part, value)| one.get(part) != Some(value)).collect();
    let differ: Vec<_> = differ.into_iter().map(|((_, name), _)| *name).collect();
    assert_eq!(differ, ["AWS_PROFILE", "AWS_REGION"]);
    let is_number_of = |part: &_, numbers: &[u32]| numbers.contains(&other[part].1);
    assert!(other.keys().all(|part| is_number_of(part, &[1]) || differ.contains(&part.1)), "{other:?}");
    assert!(is_number_of(&variable("AWS_PROFILE"), &[1, 2]) && is_number_of(&variable("AWS_REGION"), &[1]));
    assert_eq!(plugin.runs(), 2);
}

#[tokio::test]
async fn the_bound_of_the_lifetime_and_the_next_run_are_named() {
    let plugin = FakePlugin::builder().token("t").expires_in(3600).build();
    let endless = FakePlugin::builder().token("t").build();
    let failing = FakePlugin::builder().stderr("no session").exit_code(3).build();
    let (mut short, mut unknown) = (provider("short", &plugin), provider("unknown", &endless));
    (short["maxAge"], unknown["unknownExpiryMaxAge"]) = (json!("30m"), json!("20m"));
    let providers = json!([provider("plain", &plugin), short, unknown, provider("failing", &failing)]);
    let broker = InProcess::start(providers);
    for (name, bound, seconds) in [
        ("plain", Bound::ExpirationTimestamp, 3590..=3600),
        ("short", Bound::MaxAge, 1800..=1800),
        ("unknown", Bound::UnknownExpiryMaxAge, 1200..=1200),
    ] {
        broker.get(name).await.unwrap();
        let explained = explain(&broker, name).await.remove(0);
        assert_eq!(explained.bound(), bound, "{name}");
        let (fetched, expires) = (explained.fetch_time.unwrap(), explained.expiration_time.unwrap());
        assert!(seconds.contains(&(expires.seconds - fetched.seconds)), "{name}: {explained:?}");
        assert_eq!(explained.next_run_cause(), Cause::RefreshPoint, "{name}");
        assert!(explained.next_run_time.unwrap().seconds < expires.seconds, "{name}");
    }
    broker.get("failing").await.unwrap_err();
    let explained = explain(&broker, "failing").await.remove(0);
    assert_eq!((explained.bound, explained.fetch_time), (None, None));
    assert_eq!(explained.next_run_cause(), Cause::NextRequest);
    assert_eq!(explained.failed_attempts, 1);
}

#[tokio::test]
async fn the_parts_are_sent_to_those_who_ask_for_them_and_numbers_begin_with_each_page() {
    let (broker, _plugin) = two().await;
    let mut admin = CredentialBrokerAdminClient::new(broker.channel().await);
    let plain =
        admin.list_credentials(v1alpha1::ListCredentialsRequest::default()).await.unwrap().into_inner();
    assert!(plain.credentials.iter().all(|state| state.id_parts.is_empty() && state.bound.is_some()));
    let mut page_token = None;
    for _ in 0..2 {
        let request = v1alpha1::ListCredentialsRequest {
            page_size: 1,
            page_token,
            with_id_parts: true,
            ..Default::default()
        };
        let page = admin.list_credentials(request).await.unwrap().into_inner();
        let [state] = page.credentials.as_slice() else { panic!("{page:?}") };
        assert!(!state.id_parts.is_empty() && state.id_parts.iter().all(|part| part.value_number == 1));
        page_token = page.next_page_token;
    }
    assert_eq!(page_token, None);
}
