use std::time::Duration;

use credbroker_proto::v1::{
    self as pb, Credential as Message, Failure as FailureMessage, credential_broker_server::CredentialBroker,
};
use futures_util::FutureExt as _;
use tokio::{sync::mpsc, time::timeout};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use super::*;
use crate::{client::tests::serve, reference::CredentialRef as Reference};

type Answer = Result<WatchCredentialsResponse, Status>;

/// A broker that passes on the requests of one stream, and sends the answers of the test.
struct Scripted {
    requests: mpsc::UnboundedSender<WatchCredentialsRequest>,
    answers: Mutex<Option<mpsc::UnboundedReceiver<Answer>>>,
}

#[tonic::async_trait]
impl CredentialBroker for Scripted {
    async fn watch_credentials(
        &self,
        request: Request<Streaming<WatchCredentialsRequest>>,
    ) -> Result<Response<stream::BoxStream<'static, Answer>>, Status> {
        let (sender, mut requests) = (self.requests.clone(), request.into_inner());
        #[expect(clippy::disallowed_methods, reason = "ends with the stream")]
        tokio::spawn(async move {
            while let Ok(Some(request)) = requests.message().await {
                sender.send(request).unwrap();
            }
        });
        let answers = self.answers.lock().unwrap().take().expect("one stream");
        Ok(Response::new(UnboundedReceiverStream::new(answers).boxed()))
    }
}

/// The stream of a client, with the other end of it.
struct Ends {
    references: Arc<References>,
    requests: mpsc::UnboundedReceiver<WatchCredentialsRequest>,
    answers: mpsc::UnboundedSender<Answer>,
}

impl Ends {
    async fn open() -> Self {
        let (sender, requests) = mpsc::unbounded_channel();
        let (answers, receiver) = mpsc::unbounded_channel();
        let client = serve(Scripted { requests: sender, answers: Mutex::new(Some(receiver)) }).await;
        Self { references: References::start(client), requests, answers }
    }

    fn watch(&self, provider: &str) -> impl Stream<Item = Result<Credential, Error>> + Send + Unpin + use<> {
        Arc::clone(&self.references).watch(Reference::provider(provider).message())
    }

    async fn request(&mut self) -> WatchCredentialsRequest {
        timeout(Duration::from_secs(5), self.requests.recv()).await.expect("a request").unwrap()
    }

    fn answer(&self, number: u64, generation: &str) {
        let credential = Message {
            generation: generation.into(),
            token: Some("t".into()),
            expiration_time: Some((clock::system().wall + Duration::from_secs(60)).into()),
            ..Message::default()
        };
        let result = Some(Outcome::Credential(credential));
        self.answers.send(Ok(WatchCredentialsResponse { number, result, cluster: None })).unwrap();
    }

    fn fail(&self, number: u64) {
        let failure =
            FailureMessage { reason: pb::ErrorReason::PluginExit.into(), ..FailureMessage::default() };
        let result = Some(Outcome::Failure(failure));
        self.answers.send(Ok(WatchCredentialsResponse { number, result, cluster: None })).unwrap();
    }
}

async fn generation(watch: &mut (impl Stream<Item = Result<Credential, Error>> + Unpin)) -> String {
    watch.next().await.unwrap().unwrap().generation().to_owned()
}

#[tokio::test]
async fn each_watch_gets_its_own_answers_and_a_failure_ends_one() {
    let mut ends = Ends::open().await;
    let (mut first, mut second) = (ends.watch("a"), ends.watch("b"));
    let mut added = ends.request().await.add;
    while added.len() < 2 {
        added.extend(ends.request().await.add);
    }
    let numbers: Vec<_> = added.iter().map(|addition| addition.number).collect();
    assert_eq!(numbers, [1, 2]);
    ends.answer(2, "of-b");
    ends.answer(1, "of-a");
    assert_eq!((generation(&mut first).await, generation(&mut second).await), ("of-a".into(), "of-b".into()));
    ends.fail(1);
    let failed = first.next().await.unwrap().unwrap_err();
    assert_eq!(failed.reason(), Some(credbroker_proto::Reason::PluginExit));
    assert!(first.next().await.is_none());
    ends.answer(2, "again");
    assert_eq!(generation(&mut second).await, "again");
    drop((first, second));
    assert_eq!(ends.request().await.remove, [2], "the broker has ended the other one itself");
}

#[tokio::test]
async fn only_the_newest_waits_for_a_slow_reader_and_then_the_error() {
    let mut ends = Ends::open().await;
    let (mut slow, mut other) = (ends.watch("a"), ends.watch("b"));
    ends.request().await;
    for generation in ["1", "2", "3"] {
        ends.answer(1, generation);
    }
    ends.fail(1);
    ends.answer(2, "last");
    assert_eq!(generation(&mut other).await, "last");
    assert_eq!(generation(&mut slow).await, "3");
    assert!(slow.next().await.unwrap().is_err());
}

#[tokio::test]
async fn a_watch_that_ends_before_it_was_sent_is_not_sent() {
    let mut state = State::default();
    let seat = Arc::default();
    let numbers = [(); 3].map(|()| state.add(Reference::provider("p").message(), &seat));
    state.remove(numbers[1]);
    let request = state.request().unwrap();
    assert_eq!(request.add.iter().map(|addition| addition.number).collect::<Vec<_>>(), [1, 3]);
    assert!(request.remove.is_empty() && state.request().is_none());
    state.remove(numbers[0]);
    state.remove(numbers[0]);
    assert_eq!(state.request().unwrap().remove, [1]);
    assert_eq!(state.seats.len(), 1);
}

#[test]
fn a_request_fits_what_the_broker_takes() {
    let (mut state, seat) = (State::default(), Arc::default());
    let mut large = Reference::provider("p").message();
    large.env.insert("A".into(), "x".repeat(20_000));
    for _ in 0..10 {
        state.add(large.clone(), &seat);
    }
    let mut added = Vec::new();
    while let Some(request) = state.request() {
        assert!(request.encoded_len() <= 64 * 1024, "{}", request.encoded_len());
        added.extend(request.add.into_iter().map(|addition| addition.number));
    }
    assert!(added.into_iter().eq(1..=10));
    (1..=10).for_each(|number| state.remove(number));
    state.remove.extend(0..5000);
    let mut removed = 0;
    while let Some(request) = state.request() {
        assert!(request.encoded_len() <= 64 * 1024);
        removed += request.remove.len();
    }
    assert_eq!(removed, 5010);
}

#[tokio::test]
async fn the_end_of_the_stream_ends_all_watches_and_later_ones() {
    let mut ends = Ends::open().await;
    let mut watches = [ends.watch("a"), ends.watch("b")];
    ends.request().await;
    assert!(!ends.references.are_over());
    ends.answers.send(Err(Status::permission_denied("no"))).unwrap();
    for watch in &mut watches {
        assert!(matches!(watch.next().await, Some(Err(Error::Failed(failure))) if failure.message == "no"));
    }
    assert!(ends.references.are_over());
    assert!(ends.watch("c").next().now_or_never().unwrap().unwrap().is_err());
}
