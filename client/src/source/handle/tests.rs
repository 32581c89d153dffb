mod deadlines;
mod definitions;
mod endpoints;

use std::{
    collections::VecDeque,
    sync::{Mutex, atomic::AtomicUsize, atomic::Ordering},
};

use credbroker_proto::{Reason, v1};
use futures_util::StreamExt as _;
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;

use super::*;
use crate::{clock::tests::paused, failure::Failure, socket::Socket};

type Item = Result<Credential, Error>;

/// A broker as a source sees it. The test opens its watches and answers its reports.
pub(crate) struct Fake {
    pub(crate) source: CredentialSource,
    watches: Arc<Mutex<VecDeque<mpsc::UnboundedReceiver<Item>>>>,
    attempts: Arc<AtomicUsize>,
    pub(crate) reports:
        mpsc::UnboundedReceiver<(String, tokio::sync::oneshot::Sender<Result<String, Error>>)>,
}

impl Fake {
    pub(crate) fn new() -> Self {
        let watches: Arc<Mutex<VecDeque<mpsc::UnboundedReceiver<Item>>>> = Arc::default();
        let attempts = Arc::new(AtomicUsize::new(0));
        let (reported, reports) = mpsc::unbounded_channel();
        let (opened, counted) = (Arc::clone(&watches), Arc::clone(&attempts));
        let watch = move || {
            counted.fetch_add(1, Ordering::SeqCst);
            let next = opened.lock().unwrap().pop_front();
            async move { next.map(UnboundedReceiverStream::new).ok_or_else(lost) }
        };
        let report = move |generation| {
            let (answer, answered) = tokio::sync::oneshot::channel();
            reported.send((generation, answer)).unwrap();
            async move { answered.await.unwrap_or_else(|_| Err(lost())) }
        };
        let shared = SharedSource::start(Arc::new(CredentialRef::provider("p")), None, paused, watch, report);
        let source = CredentialSource::of(shared);
        Self { source, watches, attempts, reports }
    }

    /// The next watch receives what the test sends.
    pub(crate) fn broker(&self) -> mpsc::UnboundedSender<Item> {
        let (send, receive) = mpsc::unbounded_channel();
        self.watches.lock().unwrap().push_back(receive);
        send
    }
}

fn lost() -> Error {
    Error::ended(&Socket::at("/s"))
}

fn denied() -> Error {
    Failure::new(credbroker_proto::Code::PermissionDenied, "no").into()
}

pub(crate) fn credential(generation: &str, lifetime: Duration) -> Credential {
    let received = v1::Credential {
        generation: generation.into(),
        token: Some(format!("token-{generation}")),
        expiration_time: Some((paused().wall + lifetime).into()),
        ..v1::Credential::default()
    };
    Credential::receive(received, None, paused()).unwrap()
}

/// [`credential`] with its cluster.
pub(crate) fn credential_at(server: &str, generation: &str, lifetime: Duration) -> Credential {
    let received = v1::Credential {
        generation: generation.into(),
        token: Some(format!("token-{generation}")),
        expiration_time: Some((paused().wall + lifetime).into()),
        ..v1::Credential::default()
    };
    let cluster = v1::Cluster { server: server.into(), ..v1::Cluster::default() };
    Credential::receive(received, Some(cluster), paused()).unwrap()
}

fn failed(reason: Reason) -> Error {
    Failure { reason: Some(reason), ..Failure::new(credbroker_proto::Code::Unavailable, "no") }.into()
}

fn generation(source: &CredentialSource) -> Option<String> {
    source.current().map(|credential| credential.generation().to_owned())
}

pub(crate) const HOUR: Duration = Duration::from_secs(3600);

#[tokio::test(start_paused = true)]
async fn each_rotation_is_a_change() {
    let mut fake = Fake::new();
    let broker = fake.broker();
    broker.send(Ok(credential("1", HOUR))).unwrap();
    fake.source.ready().await.unwrap();
    assert_eq!(generation(&fake.source).as_deref(), Some("1"));
    fake.source.changed().await;

    let mut clone = fake.source.clone();
    broker.send(Ok(credential("1", 2 * HOUR))).unwrap(); // only its expiry changed
    broker.send(Ok(credential("2", HOUR))).unwrap();
    fake.source.changed().await;
    assert_eq!(generation(&fake.source).as_deref(), Some("2"));
    clone.changed().await;
    let nothing = timeout(HOUR / 2, fake.source.changed()).await;
    assert!(nothing.is_err(), "nothing changed after the second one");
}

#[tokio::test(start_paused = true)]
async fn its_changes_are_a_stream_that_begins_with_the_current_credential() {
    let fake = Fake::new();
    let mut changes = fake.source.changes();
    assert!(timeout(HOUR, changes.next()).await.is_err(), "there is no credential yet");
    let broker = fake.broker();
    broker.send(Ok(credential("1", HOUR))).unwrap();
    assert_eq!(changes.next().await.unwrap().generation(), "1");
    assert_eq!(fake.source.changes().next().await.unwrap().generation(), "1");
    broker.send(Ok(credential("2", HOUR))).unwrap();
    assert_eq!(changes.next().await.unwrap().generation(), "2");
    assert!(timeout(HOUR / 2, changes.next()).await.is_err(), "nothing changed after the second one");
}

#[tokio::test(start_paused = true)]
async fn it_keeps_the_last_credential_until_it_expires_while_the_broker_is_gone() {
    let fake = Fake::new();
    let broker = fake.broker();
    broker.send(Ok(credential("1", Duration::from_secs(600)))).unwrap();
    fake.source.ready().await.unwrap();
    drop(broker);
    sleep(Duration::from_secs(599)).await;
    assert_eq!(generation(&fake.source).as_deref(), Some("1"));
    assert!(matches!(fake.source.failure(), Some(Error::Unreachable { .. })));
    sleep(Duration::from_secs(1)).await;
    assert_eq!(generation(&fake.source), None);
}

#[tokio::test(start_paused = true)]
async fn it_is_current_within_two_seconds_after_a_long_absence_of_the_broker() {
    let mut fake = Fake::new();
    fake.broker().send(Ok(credential("1", HOUR))).unwrap();
    fake.source.changed().await;
    sleep(Duration::from_secs(900)).await;
    let attempts = fake.attempts.load(Ordering::SeqCst);
    assert!((450..=1000).contains(&attempts), "{attempts} attempts in 900 s");
    let broker = fake.broker();
    broker.send(Ok(credential("2", HOUR))).unwrap();
    timeout(Duration::from_secs(2), fake.source.changed()).await.unwrap();
    assert_eq!(generation(&fake.source).as_deref(), Some("2"));
    assert!(fake.source.failure().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_refuses_is_asked_twice_a_minute() {
    let fake = Fake::new();
    for _ in 0..1000 {
        fake.broker().send(Err(denied())).unwrap();
    }
    let error = fake.source.ready().await.unwrap_err();
    let code = error.failure().map(|failure| failure.code);
    assert_eq!(code, Some(credbroker_proto::Code::PermissionDenied), "{error:?}");
    sleep(HOUR).await;
    let attempts = fake.attempts.load(Ordering::SeqCst);
    assert!((120..=260).contains(&attempts), "{attempts} attempts in an hour");
}

#[tokio::test(start_paused = true)]
async fn waiting_for_the_first_credential_outlasts_a_start_but_not_an_absence() {
    let fake = Fake::new();
    let before = tokio_elapsed();
    let error = fake.source.ready().await.unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error:?}");
    assert!(tokio_elapsed() >= before + BROKER_START);

    let broker = fake.broker();
    let late = async {
        sleep(Duration::from_secs(3)).await;
        broker.send(Ok(credential("1", HOUR))).unwrap();
    };
    let (ready, ()) = tokio::join!(fake.source.ready(), late);
    ready.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_has_accepted_the_watch_is_waited_for_while_its_plugin_runs() {
    let fake = Fake::new();
    let starting = async {
        sleep(Duration::from_secs(3)).await;
        let broker = fake.broker();
        sleep(Duration::from_secs(20)).await;
        broker.send(Ok(credential("1", HOUR))).unwrap();
        broker
    };
    let (ready, _broker) = tokio::join!(fake.source.ready(), starting);
    assert_eq!(ready.unwrap().generation(), "1");
}

fn tokio_elapsed() -> Duration {
    paused().boot
}

#[tokio::test(start_paused = true)]
async fn many_rejections_are_one_report_and_an_old_generation_is_not_reported() {
    let mut fake = Fake::new();
    let broker = fake.broker();
    broker.send(Ok(credential("1", HOUR))).unwrap();
    fake.source.changed().await;
    for _ in 0..20 {
        fake.source.reject("1");
        fake.source.reject("0");
    }
    let (reported, answer) = fake.reports.recv().await.unwrap();
    assert_eq!(reported, "1");
    fake.source.reject("1");
    answer.send(Ok("2".into())).unwrap();
    broker.send(Ok(credential("2", HOUR))).unwrap();
    fake.source.changed().await;
    fake.source.reject("1");
    assert!(timeout(HOUR / 2, fake.reports.recv()).await.is_err(), "no second report");
    fake.source.reject("2");
    assert_eq!(fake.reports.recv().await.unwrap().0, "2");
}

#[tokio::test(start_paused = true)]
async fn a_generation_that_stays_rejected_is_reported_again_at_most_once_a_second() {
    let mut fake = Fake::new();
    let broker = fake.broker();
    broker.send(Ok(credential("1", HOUR))).unwrap();
    fake.source.changed().await;
    let storm = async {
        for _ in 0..1000 {
            fake.source.reject("1");
            sleep(Duration::from_millis(10)).await;
        }
    };
    let mut count = 0;
    let answering = async {
        while let Some((generation, answer)) = fake.reports.recv().await {
            count += 1;
            answer.send(Ok(generation)).unwrap();
        }
    };
    tokio::select! { () = storm => {}, () = answering => {} }
    assert!((9..=11).contains(&count), "{count} reports in ten seconds");
}

#[tokio::test(start_paused = true)]
async fn a_replacement_is_awaited_only_if_there_will_be_one() {
    let mut fake = Fake::new();
    let broker = fake.broker();
    broker.send(Ok(credential("1", HOUR))).unwrap();
    fake.source.changed().await;

    let source = fake.source.clone();
    let rejected = async {
        let (_, answer) = fake.reports.recv().await.unwrap();
        sleep(Duration::from_secs(2)).await;
        answer.send(Ok("2".into())).unwrap();
        sleep(Duration::from_millis(20)).await; // the answer may come before the watch's message
        broker.send(Ok(credential("2", HOUR))).unwrap();
    };
    let (replacement, ()) = tokio::join!(source.replace("1"), rejected);
    assert_eq!(replacement.unwrap().generation(), "2");
    assert_eq!(source.replace("1").await.unwrap().generation(), "2", "known immediately");

    let before = tokio_elapsed();
    let kept = async { fake.reports.recv().await.unwrap().1.send(Ok("2".into())).unwrap() };
    let (replacement, ()) = tokio::join!(source.replace("2"), kept);
    assert!(replacement.is_none() && tokio_elapsed() < before + Duration::from_secs(2));
}

#[tokio::test(start_paused = true)]
async fn the_last_handle_ends_the_task() {
    let fake = Fake::new();
    let broker = fake.broker();
    let clone = fake.source.clone();
    broker.send(Ok(credential("1", HOUR))).unwrap();
    fake.source.ready().await.unwrap();
    drop(fake);
    assert!(timeout(HOUR / 4, broker.closed()).await.is_err(), "a clone still reads it");
    drop(clone);
    broker.closed().await;
}

#[tokio::test(start_paused = true)]
async fn debug_shows_no_secret() {
    let fake = Fake::new();
    fake.broker().send(Ok(credential("c4n4ry", HOUR))).unwrap();
    fake.source.ready().await.unwrap();
    let text = format!("{:?}", fake.source);
    assert!(!text.contains("token-c4n4ry"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_ends_after_its_first_message_is_not_retried_in_a_hot_loop() {
    let fake = Fake::new();
    for _ in 0..1000 {
        fake.broker().send(Ok(credential("1", HOUR))).unwrap();
    }
    sleep(Duration::from_secs(60)).await;
    let attempts = fake.attempts.load(Ordering::SeqCst);
    assert!((20..=80).contains(&attempts), "{attempts} watches in a minute");
}
