//! `ExplainCredentials`: why two credentials are not one, what bounds them, and when the next run is. No value leaves the
//! broker.

use std::collections::{BTreeMap, BTreeSet};

use credbroker_proto::v1::{
    self as pb,
    credential_broker_admin_client::CredentialBrokerAdminClient,
    credential_lifetime::Bound,
    credential_selector::Selector,
    key_part::{Kind, Origin},
    next_run::Cause,
};
use credbroker_test_support::FakePlugin;
use prost::Message as _;
use serde_json::{Value, json};

use crate::harness::{InProcess, provider};

/// In every value that must stay in the broker.
const CANARY: &str = "c4n4ry";

async fn explain(broker: &InProcess, name: &str) -> Vec<pb::CredentialExplanation> {
    let mut admin = CredentialBrokerAdminClient::new(broker.channel().await);
    let selector = Some(pb::CredentialSelector { selector: Some(Selector::Provider(name.into())) });
    let request = pb::ExplainCredentialsRequest { selector, ..Default::default() };
    let answer = admin.explain_credentials(request).await.unwrap().into_inner();
    assert_eq!(answer.next_page_token, "");
    let bytes = answer.encode_to_vec();
    let found = bytes.windows(CANARY.len()).any(|window| window == CANARY.as_bytes());
    assert!(!found, "a value left the broker: {answer:?}");
    answer.credentials
}

fn parts(explained: &pb::CredentialExplanation) -> BTreeMap<(i32, &str), (Origin, &str)> {
    let part = |part: &'_ pb::KeyPart| part.origin();
    explained
        .key_parts
        .iter()
        .map(|found| ((found.kind, found.name.as_str()), (part(found), found.fingerprint.as_str())))
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
    let fingerprints: BTreeSet<_> = other.values().map(|(_, fingerprint)| fingerprint).collect();
    assert_eq!(fingerprints.len(), other.len(), "equal values of different parts are not shown as equal");
    assert!(fingerprints.iter().all(|fingerprint| fingerprint.len() == 16));
    assert_eq!(plugin.runs(), 2);
}

/// A fingerprint that one could compute, or remember, would show whether a value is a guess or has changed.
#[tokio::test]
async fn another_start_of_the_broker_has_other_fingerprints() {
    let (broker, _plugin) = two().await;
    let (first, again) = (explain(&broker, "full").await, explain(&broker, "full").await);
    assert_eq!(first[0].key_parts, again[0].key_parts, "they can be compared until the broker ends");
    let fingerprints = |explained: &[pb::CredentialExplanation]| -> BTreeSet<String> {
        let parts = explained.iter().flat_map(|explained| &explained.key_parts);
        parts.map(|part| part.fingerprint.clone()).collect()
    };
    let (restarted, _plugin) = two().await;
    let restarted = explain(&restarted, "full").await;
    assert!(fingerprints(&first).is_disjoint(&fingerprints(&restarted)));
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
        let lifetime = explained.lifetime.unwrap();
        assert_eq!(lifetime.bound(), bound, "{name}");
        assert!(seconds.contains(&lifetime.lifetime.unwrap().seconds), "{name}: {lifetime:?}");
        let next = explained.next_run.unwrap();
        assert_eq!(next.cause(), Cause::RefreshPoint, "{name}");
        let (next, expires) = (next.time.unwrap(), explained.state.unwrap().expiration_time.unwrap());
        assert!(next.seconds < expires.seconds, "{name}");
    }
    broker.get("failing").await.unwrap_err();
    let explained = explain(&broker, "failing").await.remove(0);
    assert_eq!(explained.lifetime, None);
    assert_eq!(explained.next_run.unwrap().cause(), Cause::NextRequest);
    assert_eq!(explained.state.unwrap().failed_attempts, 1);
}

#[tokio::test]
async fn pages_are_those_of_a_list() {
    let (broker, _plugin) = two().await;
    let mut admin = CredentialBrokerAdminClient::new(broker.channel().await);
    let page = |page_token: String| {
        let mut admin = admin.clone();
        let request = pb::ExplainCredentialsRequest { page_size: 1, page_token, selector: None };
        async move { admin.explain_credentials(request).await }
    };
    let first = page(String::new()).await.unwrap().into_inner();
    let second = page(first.next_page_token.clone()).await.unwrap().into_inner();
    assert_eq!((first.credentials.len(), second.credentials.len()), (1, 1));
    assert_eq!(second.next_page_token, "");
    assert_ne!(first.credentials[0].state, second.credentials[0].state);
    let foreign = pb::ListCredentialsRequest { page_token: first.next_page_token, ..Default::default() };
    assert!(admin.list_credentials(foreign).await.is_err(), "a token belongs to its list");
}
