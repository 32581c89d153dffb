use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::*;
use crate::watch::tests::ServerAsToken;
use credbroker_cache::CacheParts;
use credbroker_credential::testing::with_token as issued_for_tests;
use credbroker_fleet::resolver::Resolver;
use credbroker_observe::clock::SystemClock;
use credbroker_plugin::{Command, Providers, testing::provider as test_provider};
use credbroker_uds_server::WatchSlots;

#[test]
fn a_report_is_answered_with_the_credential_and_what_was_done() {
    use pb::report_rejected_response::Outcome;
    let credential = pb::Credential { generation: "e-7".into(), ..pb::Credential::default() };
    let get = pb::GetCredentialResponse { credential: Some(credential.clone()), ..Default::default() };
    let mut issued = issued_for_tests("t");
    issued.encoded.frame = preencoded::frame(&get);
    let retry_after = Duration::from_secs(7);
    for (outcome, expected) in [
        (ReportOutcome::Replaced, Outcome::Replaced),
        (ReportOutcome::AlreadyReplaced, Outcome::AlreadyReplaced),
        (ReportOutcome::TooEarly { retry_after }, Outcome::TooEarly),
        (ReportOutcome::NothingNewer, Outcome::NothingNewer),
        (ReportOutcome::UnknownGeneration, Outcome::UnknownGeneration),
    ] {
        let reported = Reported { issued: Arc::new(issued.clone()), outcome };
        let answer = report_answer(&reported, None).unwrap();
        assert_eq!((answer.outcome(), answer.credential.as_ref()), (expected, Some(&credential)));
        let after = answer.retry_after.map(|after| after.seconds);
        assert_eq!(after, (expected == Outcome::TooEarly).then_some(7));
    }
}

#[test]
fn a_watch_that_begins_while_the_broker_drains_is_refused() {
    let draining = CancellationToken::new();
    let slots = WatchSlots::new(draining.clone());
    drop(slots.acquire().unwrap());
    draining.cancel();
    let refused = status::refusal(slots.acquire().unwrap_err());
    assert_eq!(refused.code(), tonic::Code::Unavailable);
    assert!(refused.message().ends_with("(DRAINING)"), "{refused}");
}

/// A broker with the provider `p`.
fn broker() -> Arc<Broker<ServerAsToken>> {
    let providers = Arc::new(Providers::new([test_provider("p", Command::Path("/bin/sh".into()))]));
    let parts = CacheParts::for_tests(
        ServerAsToken,
        Arc::new(SystemClock),
        &TaskTracker::new(),
        &CancellationToken::new(),
    );
    let cache = CredentialCache::new(CacheParts { encode: crate::encode, ..parts });
    Broker::for_tests(cache, Arc::new(Resolver::new(providers, None)))
}

fn request(provider: &str, min_lifetime: Option<prost_types::Duration>) -> pb::GetCredentialRequest {
    let provider = pb::ProviderRef { name: provider.into(), ..pb::ProviderRef::default() };
    let source = Some(pb::credential_ref::Source::Provider(provider));
    let r#ref = Some(pb::CredentialRef { source, ..pb::CredentialRef::default() });
    pb::GetCredentialRequest { r#ref, min_lifetime, ..pb::GetCredentialRequest::default() }
}

#[tokio::test]
async fn a_get_that_memory_does_not_answer_continues_from_what_the_look_up_learned() {
    let broker = broker();
    let (access, mut learned) = (Access::of_the_owner(), Extensions::new());
    let encoded = Bytes::from(request("p", None).encode_to_vec());
    assert_eq!(broker.recall(&access, encoded.clone(), &mut learned), None);
    let get = learned.remove::<Get>().unwrap();
    let frame = broker.get(&access, get, None).await.unwrap();
    assert_eq!(broker.recall(&access, encoded, &mut learned), Some(frame));
    assert_eq!(broker.recall(&access, Bytes::new(), &mut learned), None, "it names nothing");
    assert!(learned.is_empty());
}

/// Its plugin issues credentials for an hour.
#[tokio::test]
async fn an_answer_says_that_it_is_short_also_from_memory() {
    let broker = broker();
    let access = Access::of_the_owner();
    let long = request("p", Some(prost_types::Duration { seconds: 7_200, nanos: 0 }));
    let mut learned = Extensions::new();
    assert_eq!(broker.recall(&access, Bytes::from(long.encode_to_vec()), &mut learned), None);
    let answer = broker.get(&access, learned.remove::<Get>().unwrap(), None).await.unwrap();
    let recalled = broker.recall(&access, Bytes::from(long.encode_to_vec()), &mut learned);
    assert_eq!(recalled.as_ref(), Some(&answer), "the plugin has just shown that it cannot do better");
    for (min_lifetime, is_short) in [(None, false), (Some(3_000), false), (Some(7_200), true)] {
        let min_lifetime = min_lifetime.map(|seconds| prost_types::Duration { seconds, nanos: 0 });
        let sent = Bytes::from(request("p", min_lifetime).encode_to_vec());
        let recalled = broker.recall(&access, sent, &mut learned).unwrap();
        let answer: pb::GetCredentialResponse = preencoded::decoded(&recalled).unwrap();
        assert_eq!((answer.is_short, answer.credential.is_some()), (is_short, true), "{min_lifetime:?}");
    }
    let sent = request("p", Some(prost_types::Duration { seconds: -1, nanos: 0 })).encode_to_vec();
    assert_eq!(broker.recall(&access, Bytes::from(sent), &mut learned), None);
    assert!(learned.is_empty(), "the service reports the error");
}
