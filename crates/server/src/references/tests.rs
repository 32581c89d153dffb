use std::time::Duration;

use credbroker_proto::v1::watch_credentials_request::Addition;
use http_body_util::BodyExt as _;
use prost::Message as _;
use serde_json::{Value, json};
use tokio::{sync::mpsc, time::timeout};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic::{Code, body::Body};

use super::*;
use crate::watch::tests::ServerAsToken;
use credbroker_cache::{CacheParts, CredentialCache, Selector};
use credbroker_fleet::{Fleet, resolver::Resolver};
use credbroker_observe::clock::SystemClock;
use credbroker_plugin::{
    Command, ProfileName, Providers,
    cluster_profile::{ClusterProfile, EndpointRules},
    testing::provider,
};

type Sender = mpsc::UnboundedSender<Result<pb::WatchCredentialsRequest, Status>>;

/// An open stream, for a fleet of which every profile has the provider `p`.
struct Open {
    fleet: Arc<Fleet>,
    cache: CredentialCache<ServerAsToken>,
    sender: Option<Sender>,
    body: Body,
    received: BytesMut,
}

impl Open {
    fn new() -> Self {
        let providers = Arc::new(Providers::new([provider("p", Command::Path("/bin/sh".into()))]));
        let fleet = Arc::new(Fleet::new(Arc::clone(&providers), EndpointRules::default()));
        fleet.set_hub(true, None);
        let resolver = Arc::new(Resolver::new(providers, Some(Arc::clone(&fleet))));
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let parts = CacheParts::for_tests(ServerAsToken, Arc::new(SystemClock), &tasks, &stop);
        let cache = CredentialCache::new(CacheParts { encode: crate::encode, ..parts });
        let broker = Broker::for_tests(cache.clone(), resolver);
        let (sender, mut requests) = mpsc::unbounded_channel();
        let requests = stream::poll_fn(move |cx| requests.poll_recv(cx));
        let references = References::new(broker, Access::of_the_owner(), Arc::default(), requests);
        Self { fleet, cache, sender: Some(sender), body: references.body(), received: BytesMut::new() }
    }

    fn apply(&self, profile: &str, server: &str) {
        let cluster = json!({"server": server});
        let status = json!({"accessProviders": [{"name": "p", "cluster": cluster}]});
        self.fleet.apply(ClusterProfile::read(ProfileName::new("fleet", profile), &Value::Null, &status));
    }

    fn send(&self, add: impl IntoIterator<Item = (u64, pb::CredentialRef)>, remove: &[u64]) {
        let add = add.into_iter().map(|(number, r#ref)| Addition { number, r#ref: Some(r#ref) }).collect();
        let request = pb::WatchCredentialsRequest { add, remove: remove.to_vec() };
        self.sender.as_ref().unwrap().send(Ok(request)).unwrap();
    }

    /// The next answer, or how the stream ends.
    async fn answer(&mut self) -> Result<pb::WatchCredentialsResponse, Status> {
        loop {
            if let Some((head, rest)) = self.received.split_first_chunk::<5>() {
                let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
                if rest.len() >= length {
                    let answer = self.received.split_to(5 + length).split_off(5);
                    return Ok(pb::WatchCredentialsResponse::decode(answer).unwrap());
                }
            }
            match self.body.frame().await.expect("trailers end the stream").unwrap().into_data() {
                Ok(data) => self.received.extend_from_slice(&data),
                Err(trailers) => {
                    return Err(Status::from_header_map(trailers.trailers_ref().unwrap()).unwrap());
                }
            }
        }
    }

    async fn is_quiet(&mut self) -> bool {
        timeout(Duration::from_secs(30), self.answer()).await.is_err()
    }

    async fn token(&mut self) -> (u64, String) {
        let answer = self.answer().await.unwrap();
        let Some(Outcome::Credential(credential)) = answer.result else { panic!("{answer:?}") };
        assert_eq!(answer.cluster.map(|cluster| cluster.server).unwrap_or_default(), credential.token());
        (answer.number, credential.token().to_owned())
    }

    async fn failure(&mut self) -> (u64, pb::Failure) {
        let answer = self.answer().await.unwrap();
        let Some(Outcome::Failure(failure)) = answer.result else { panic!("{answer:?}") };
        (answer.number, failure)
    }

    fn watches(&self) -> usize {
        self.cache.list(&Selector::All, None, 10).iter().map(|held| held.watchers).sum()
    }
}

fn profile(name: &str) -> pb::CredentialRef {
    let profile = pb::ClusterProfileRef { namespace: "fleet".into(), name: name.into() };
    pb::CredentialRef {
        source: Some(pb::credential_ref::Source::ClusterProfile(profile)),
        ..pb::CredentialRef::default()
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_reference_ends_and_no_other_and_its_number_is_free() {
    let mut open = Open::new();
    open.apply("paris", "https://a");
    open.send([(7, profile("paris")), (8, profile("rome"))], &[]);
    let mut answers = [open.answer().await.unwrap(), open.answer().await.unwrap()];
    answers.sort_by_key(|answer| answer.number);
    let [paris, rome] = answers;
    assert!(matches!(paris.result, Some(Outcome::Credential(_))), "{paris:?}");
    let Some(Outcome::Failure(failure)) = rome.result else { panic!("{rome:?}") };
    assert_eq!((rome.number, failure.reason()), (8, pb::ErrorReason::UnknownClusterProfile));
    assert!(!failure.message.contains("UNKNOWN_CLUSTER_PROFILE"), "{}", failure.message);
    assert_eq!(failure.metadata.get("cluster").map(String::as_str), Some("fleet/rome"));
    open.apply("rome", "https://b");
    open.send([(8, profile("rome"))], &[]);
    assert_eq!(open.token().await, (8, "https://b".into()));
    open.apply("paris", "https://c");
    assert_eq!(open.token().await, (7, "https://c".into()), "the other one is still watched");
}

#[tokio::test(start_paused = true)]
async fn only_the_newest_state_of_each_reference_waits_for_a_slow_reader() {
    let mut open = Open::new();
    open.apply("paris", "https://a");
    open.apply("rome", "https://a");
    open.send([(1, profile("paris")), (2, profile("rome"))], &[]);
    for _ in 0..2 {
        open.token().await;
    }
    for server in 0..20 {
        open.apply("paris", &format!("https://{server}"));
    }
    assert_eq!(open.token().await, (1, "https://19".into()));
    assert!(open.is_quiet().await);
}

#[tokio::test(start_paused = true)]
async fn a_removed_reference_is_watched_no_longer_and_an_unknown_number_is_ignored() {
    let mut open = Open::new();
    for name in ["paris", "rome"] {
        open.apply(name, "https://a");
    }
    open.send([(1, profile("paris")), (2, profile("rome"))], &[]);
    for _ in 0..2 {
        open.token().await;
    }
    assert_eq!(open.watches(), 2);
    open.send([], &[2, 99]);
    assert!(open.is_quiet().await);
    assert_eq!(open.watches(), 1);
    // The number is free in the request that removes it.
    open.send([(1, profile("rome"))], &[1]);
    assert_eq!(open.token().await, (1, "https://a".into()));
    assert_eq!(open.watches(), 1);
    open.sender = None;
    assert!(open.is_quiet().await, "a client that sends nothing more still watches");
    assert!(open.fleet.remove(&ProfileName::new("fleet", "rome")));
    assert_eq!(open.failure().await.0, 1);
    assert_eq!(open.answer().await.unwrap_err().code(), Code::Ok);
}

#[tokio::test(start_paused = true)]
async fn a_number_that_is_in_use_ends_the_stream() {
    let mut open = Open::new();
    open.apply("paris", "https://a");
    open.send([(1, profile("paris")), (1, profile("paris"))], &[]);
    let ended = open.answer().await.unwrap_err();
    assert_eq!(ended.code(), Code::InvalidArgument);
    assert!(ended.message().contains("number 1 is in use"), "{}", ended.message());
}

#[tokio::test(start_paused = true)]
async fn a_reference_that_is_not_valid_fails_alone() {
    let mut open = Open::new();
    open.apply("paris", "https://a");
    let nothing = pb::CredentialRef::default();
    let references = [(1, nothing.clone()), (2, nothing), (3, profile("")), (4, profile("paris"))];
    open.send(references, &[]);
    for (number, expected) in
        [(1, "`ref` is empty"), (2, "`ref` is empty"), (3, "`ref.cluster_profile` needs")]
    {
        let (failed, failure) = open.failure().await;
        assert_eq!((failed, failure.reason()), (number, pb::ErrorReason::InvalidRequest));
        assert!(failure.message.contains(expected), "{}", failure.message);
    }
    assert_eq!(open.token().await.0, 4);
}

#[tokio::test(start_paused = true)]
async fn answers_of_any_length_arrive_whole() {
    let mut open = Open::new();
    let lengths = [10, 3000, LONG - 100, LONG, 20_000];
    for round in 0..3 {
        let references = lengths.map(|length| {
            let name = format!("p-{length}");
            open.apply(&name, &format!("https://{round}{}", "a".repeat(length)));
            (length as u64, profile(&name))
        });
        open.send(references, &lengths.map(|length| length as u64));
        let mut seen = Vec::new();
        for _ in lengths {
            let (number, token) = open.token().await;
            assert_eq!(token.len() as u64, 9 + number);
            seen.push(number);
        }
        seen.sort_unstable();
        assert_eq!(seen, lengths.map(|length| length as u64));
    }
}
