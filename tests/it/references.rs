//! `WatchCredentials`: many references on one stream, over the wire.

use std::{ops::Range, time::Duration};

use credbroker::app::Drained;
use credbroker_proto::v1::{
    self as pb, ErrorReason, credential_broker_client::CredentialBrokerClient,
    watch_credentials_request::Addition, watch_credentials_response::Result as Outcome,
};
use credbroker_test_support::FakePlugin;
use rustix::process::geteuid;
use serde_json::{Value, json};
use tokio::{sync::mpsc, time::timeout};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::{Code, Status, Streaming};

use crate::harness::{InProcess, provider, request};

/// One stream of a client.
struct References {
    sender: mpsc::UnboundedSender<pb::WatchCredentialsRequest>,
    answers: Streaming<pb::WatchCredentialsResponse>,
}

impl References {
    async fn open(broker: &InProcess) -> Self {
        let (sender, requests) = mpsc::unbounded_channel();
        let mut client = CredentialBrokerClient::new(broker.channel().await);
        let answers = client.watch_credentials(UnboundedReceiverStream::new(requests)).await.unwrap();
        Self { sender, answers: answers.into_inner() }
    }

    fn add(&self, additions: impl IntoIterator<Item = (u64, pb::GetCredentialRequest)>) {
        let addition =
            |(number, request): (_, pb::GetCredentialRequest)| Addition { number, r#ref: request.r#ref };
        let add = additions.into_iter().map(addition).collect();
        self.sender.send(pb::WatchCredentialsRequest { add, remove: Vec::new() }).unwrap();
    }

    async fn answer(&mut self) -> Result<Option<pb::WatchCredentialsResponse>, Status> {
        timeout(Duration::from_secs(60), self.answers.message()).await.expect("an answer in time")
    }

    async fn token(&mut self) -> (u64, String) {
        let answer = self.answer().await.unwrap().unwrap();
        let Some(Outcome::Credential(credential)) = answer.result else { panic!("{answer:?}") };
        (answer.number, credential.token.unwrap())
    }

    async fn failure(&mut self) -> (u64, ErrorReason) {
        let answer = self.answer().await.unwrap().unwrap();
        let Some(Outcome::Failure(failure)) = answer.result else { panic!("{answer:?}") };
        (answer.number, failure.reason())
    }
}

fn named(name: &str) -> pb::GetCredentialRequest {
    request(name, None, &[])
}

fn numbered(numbers: Range<u64>, name: &str) -> impl Iterator<Item = (u64, pb::GetCredentialRequest)> {
    numbers.map(move |number| (number, named(name)))
}

#[tokio::test]
async fn each_rotation_reaches_every_reference_and_one_that_fails_ends_alone() {
    let rotating = FakePlugin::builder().token_per_run().expires_in(8).build();
    let failing = FakePlugin::script("echo no >&2; exit 1");
    let broker = InProcess::start(json!([provider("cloud", &rotating), provider("broken", &failing)]));
    let mut references = References::open(&broker).await;
    references.add(numbered(0..100, "cloud"));
    references.add([(100, named("broken")), (101, named("absent"))]);
    let (mut failed, mut tokens) = (Vec::new(), vec![0; 100]);
    while tokens.iter().any(|run| *run < 3) || failed.len() < 2 {
        let answer = references.answer().await.unwrap().unwrap();
        match answer.result.unwrap() {
            Outcome::Failure(failure) => failed.push((answer.number, failure.reason(), failure.retry_after)),
            Outcome::Credential(credential) => {
                let run: u64 = credential.token().strip_prefix("token-").unwrap().parse().unwrap();
                let last = &mut tokens[usize::try_from(answer.number).unwrap()];
                assert!(run > *last, "{run} after {last}");
                *last = run;
            }
        }
    }
    failed.sort_by_key(|(number, ..)| *number);
    let reasons: Vec<_> = failed.iter().map(|(number, reason, _)| (*number, *reason)).collect();
    assert_eq!(reasons, [(100, ErrorReason::PluginExit), (101, ErrorReason::UnknownProvider)]);
    assert!(failed[0].2.is_some(), "the broker backs off");
    references.add([(101, named("cloud"))]);
    while references.token().await.0 != 101 {}
    drop(references.sender);
    let health = CredentialBrokerClient::new(broker.channel().await).get_credential(named("cloud")).await;
    health.unwrap();
}

#[tokio::test]
async fn a_reference_that_loses_its_right_or_its_provider_ends_and_the_others_go_on() {
    let plugin = FakePlugin::builder().token_per_run().expires_in(3600).build();
    let sections = |providers: &[&str], allowed: &Value, verb: &str| {
        let providers: Vec<_> = providers.iter().map(|name| provider(name, &plugin)).collect();
        let allow = json!({"providers": allowed, "verbs": [verb]});
        let rule = json!({"name": "own", "peers": {"uids": [geteuid().as_raw()]}, "allow": allow});
        json!({"providers": providers, "access": [rule]})
    };
    let all = ["a", "b", "c"];
    let broker = InProcess::with(sections(&all, &json!(["*"]), "watch"), &[]);
    let mut references = References::open(&broker).await;
    references.add((0..).zip(all.map(named)));
    for _ in all {
        references.token().await;
    }
    broker.reconfigure(sections(&all, &json!(["a", "c"]), "watch")).await;
    assert_eq!(references.failure().await, (1, ErrorReason::PeerDenied));
    references.add([(1, named("b"))]);
    assert_eq!(references.failure().await, (1, ErrorReason::PeerDenied));
    broker.reconfigure(sections(&["a", "b"], &json!(["*"]), "watch")).await;
    assert_eq!(references.failure().await, (2, ErrorReason::ProviderChanged));
    references.add([(3, named("b"))]);
    assert_eq!(references.token().await.0, 3);
    assert_eq!(plugin.runs(), 3, "nothing ran again");
    let foreign = json!([{"name": "foreign", "peers": {"uids": [geteuid().as_raw() + 7]}, "allow": {"providers": ["*"], "verbs": ["get"]}}]);
    let mut none = sections(&all, &json!(["*"]), "watch");
    none["access"] = foreign;
    broker.reconfigure(none).await;
    let ended = loop {
        match references.answer().await {
            Ok(answer) => assert!(matches!(answer.unwrap().result, Some(Outcome::Failure(_)))),
            Err(status) => break status,
        }
    };
    assert_eq!(ended.code(), Code::PermissionDenied, "{ended}");
}

#[tokio::test]
async fn a_stream_has_few_bytes_at_a_time_and_many_references() {
    let plugin = FakePlugin::builder().token("t").expires_in(3600).build();
    let broker = InProcess::start(json!([provider("cloud", &plugin)]));
    let mut references = References::open(&broker).await;
    for hundred in 0..50 {
        references.add(numbered(100 * hundred..100 * hundred + 100, "cloud"));
    }
    let mut numbers = Vec::new();
    for _ in 0..5000 {
        numbers.push(references.token().await.0);
    }
    numbers.sort_unstable();
    assert!(numbers.into_iter().eq(0..5000));
    assert_eq!(plugin.runs(), 1);
    let mut large = named("cloud");
    large.r#ref.as_mut().unwrap().env.insert("LARGE".into(), "x".repeat(64 * 1024));
    references.add([(9999, large)]);
    let ended = references.answer().await.unwrap_err();
    assert_eq!(ended.code(), Code::InvalidArgument);
    assert!(ended.message().contains("64 KiB"), "{}", ended.message());
}

#[tokio::test]
async fn references_that_do_not_fit_fail_and_others_are_served() {
    let plugin = FakePlugin::builder().token("t").expires_in(3600).build();
    let sections = json!({"providers": [provider("cloud", &plugin)], "limits": {"bytes": "1Mi"}});
    let broker = InProcess::with(sections, &[]);
    let mut references = References::open(&broker).await;
    references.add(numbered(0..1000, "cloud"));
    let (mut served, mut refused) = (0, 0);
    for _ in 0..1000 {
        match references.answer().await.unwrap().unwrap().result.unwrap() {
            Outcome::Credential(_) => served += 1,
            Outcome::Failure(failure) => {
                assert_eq!(failure.reason(), ErrorReason::Overloaded);
                assert!(failure.retry_after.is_some(), "{failure:?}");
                refused += 1;
            }
        }
    }
    assert!(served > 100 && refused > 100, "{served} served, {refused} refused");
    let remove = (0..1000).collect();
    references.sender.send(pb::WatchCredentialsRequest { add: Vec::new(), remove }).unwrap();
    references.add(numbered(1000..1100, "cloud"));
    for _ in 0..100 {
        references.token().await;
    }
}

#[tokio::test]
async fn a_drain_ends_the_stream_and_the_client_is_to_come_back() {
    let plugin = FakePlugin::builder().token("t").expires_in(3600).build();
    let broker = InProcess::start(json!([provider("cloud", &plugin)]));
    let mut references = References::open(&broker).await;
    references.add(numbered(0..10, "cloud"));
    for _ in 0..10 {
        references.token().await;
    }
    assert_eq!(broker.stop().await, Drained::Whole);
    let ended = references.answer().await.unwrap_err();
    assert_eq!(ended.code(), Code::Unavailable, "{ended}");
    assert!(ended.message().ends_with("(DRAINING)"), "{ended}");
}
