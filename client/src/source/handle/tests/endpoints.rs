//! The API server that a credential is for.

use super::*;

fn server(source: &CredentialSource) -> Option<String> {
    source.current().and_then(|credential| Some(credential.cluster()?.server.clone()))
}

#[tokio::test(start_paused = true)]
async fn the_same_credential_for_another_cluster_is_a_change() {
    let mut fake = Fake::new();
    let broker = fake.broker();
    broker.send(Ok(credential_at("https://a", "1", HOUR))).unwrap();
    fake.source.changed().await;
    broker.send(Ok(credential_at("https://b", "1", HOUR))).unwrap();
    timeout(HOUR, fake.source.changed()).await.unwrap();
    assert_eq!(server(&fake.source).as_deref(), Some("https://b"));
}

#[tokio::test(start_paused = true)]
async fn a_source_at_an_endpoint_follows_its_rotations_and_hides_those_of_the_next_one() {
    let mut fake = Fake::new();
    let broker = fake.broker();
    broker.send(Ok(credential_at("https://a", "1", HOUR))).unwrap();
    let first = fake.source.ready().await.unwrap();
    let a = fake.source.at_endpoint_of(first);
    fake.source.changed().await;
    broker.send(Ok(credential_at("https://a", "2", HOUR))).unwrap();
    fake.source.changed().await;
    assert_eq!(generation(&a).as_deref(), Some("2"));
    broker.send(Ok(credential_at("https://b", "3", 2 * HOUR))).unwrap();
    fake.source.changed().await;
    assert_eq!((generation(&fake.source).as_deref(), generation(&a).as_deref()), (Some("3"), Some("2")));

    let before = tokio_elapsed();
    assert!(a.replace("2").await.is_none() && tokio_elapsed() == before, "there will be none for it");
    a.reject("3");
    assert!(
        timeout(HOUR / 2, fake.reports.recv()).await.is_err(),
        "its rejections do not concern the other endpoint"
    );
    sleep(HOUR / 2).await;
    assert_eq!((generation(&fake.source).as_deref(), generation(&a)), (Some("3"), None), "it ended");
    broker.send(Ok(credential_at("https://a", "4", HOUR))).unwrap();
    fake.source.changed().await;
    assert_eq!(generation(&a).as_deref(), Some("4"), "it came back");
}

#[tokio::test(start_paused = true)]
async fn a_wait_for_a_replacement_ends_when_the_cluster_moves() {
    let mut fake = Fake::new();
    let broker = fake.broker();
    broker.send(Ok(credential_at("https://a", "1", HOUR))).unwrap();
    let a = fake.source.at_endpoint_of(fake.source.ready().await.unwrap());
    let moves = async {
        let report = fake.reports.recv().await.unwrap();
        broker.send(Ok(credential_at("https://b", "2", HOUR))).unwrap();
        report
    };
    let before = tokio_elapsed();
    let (replacement, _report) = tokio::join!(a.replace("1"), moves);
    assert!(replacement.is_none() && tokio_elapsed() < before + Duration::from_secs(1));
}
