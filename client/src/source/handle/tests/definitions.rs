//! The definition of a provider changes or goes.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_credential_of_a_definition_that_is_gone_is_not_returned_again() {
    let mut fake = Fake::new();
    let broker = fake.broker();
    broker.send(Ok(credential_at("https://a", "1", HOUR))).unwrap();
    let a = fake.source.at_endpoint_of(fake.source.ready().await.unwrap());
    fake.source.changed().await;
    broker.send(Ok(credential_at("https://b", "2", HOUR))).unwrap();
    fake.source.changed().await;
    let first = fake.source.current().unwrap();
    assert_eq!((generation(&fake.source).as_deref(), generation(&a).as_deref()), (Some("2"), Some("1")));

    broker.send(Err(failed(Reason::ProviderChanged))).unwrap();
    until_failure(&fake.source).await;
    let late = fake.source.at_endpoint_of(first);
    for source in [&fake.source, &a, &late] {
        assert_eq!(generation(source), None);
        assert_eq!(source.failure().and_then(|error| error.reason()), Some(Reason::ProviderChanged));
    }
    assert!(fake.source.replace("2").await.is_none());

    let broker = fake.broker();
    broker.send(Ok(credential_at("https://b", "3", HOUR))).unwrap();
    timeout(Duration::from_secs(2), fake.source.changed()).await.unwrap();
    assert_eq!((generation(&fake.source).as_deref(), generation(&late).as_deref()), (Some("3"), Some("3")));
    assert_eq!(generation(&a), None, "its only credential is of the earlier definition");
}

/// What was made with them, such as a tunnel, can be closed.
#[tokio::test(start_paused = true)]
async fn each_withdrawal_is_reported_and_a_rotation_is_none() {
    let mut fake = Fake::new();
    let mut withdrawals = fake.source.withdrawals();
    let broker = fake.broker();
    for number in ["1", "2"] {
        broker.send(Ok(credential(number, HOUR))).unwrap();
        fake.source.changed().await;
        assert!(timeout(HOUR / 2, withdrawals.next()).await.is_err(), "a rotation");
    }
    broker.send(Err(failed(Reason::ProviderChanged))).unwrap();
    assert!(withdrawals.next().await.is_some());
    fake.broker().send(Ok(credential("3", HOUR))).unwrap();
    fake.source.changed().await;
    assert!(timeout(HOUR / 2, withdrawals.next()).await.is_err(), "once");
    drop(fake);
    assert!(withdrawals.next().await.is_none(), "it does not keep the source");
}

#[tokio::test(start_paused = true)]
async fn a_wait_after_a_change_of_the_definition_lasts_as_long_as_the_plugin_run() {
    let fake = Fake::new();
    let broker = fake.broker();
    broker.send(Ok(credential("1", HOUR))).unwrap();
    fake.source.ready().await.unwrap();
    let next = fake.broker();
    broker.send(Err(failed(Reason::ProviderChanged))).unwrap();
    until_failure(&fake.source).await;
    let run = async {
        sleep(BROKER_START * 2).await;
        next.send(Ok(credential("2", HOUR))).unwrap();
    };
    let (ready, ()) = tokio::join!(fake.source.ready(), run);
    assert_eq!(ready.unwrap().generation(), "2");
}

#[tokio::test(start_paused = true)]
async fn a_removed_provider_is_not_waited_for() {
    let fake = Fake::new();
    let broker = fake.broker();
    broker.send(Ok(credential("1", HOUR))).unwrap();
    fake.source.ready().await.unwrap();
    for _ in 0..10 {
        fake.broker().send(Err(failed(Reason::UnknownProvider))).unwrap();
    }
    broker.send(Err(failed(Reason::ProviderChanged))).unwrap();
    until_failure(&fake.source).await;
    let before = tokio_elapsed();
    assert_eq!(fake.source.ready().await.unwrap_err().reason(), Some(Reason::UnknownProvider));
    assert!(tokio_elapsed() < before + Duration::from_secs(1));
}

/// A broker that restarts while a kubeconfig is being written does not know its users at first.
#[tokio::test(start_paused = true)]
async fn every_other_failure_leaves_the_credential_until_it_expires() {
    let others = Reason::all().filter(|reason| *reason != Reason::ProviderChanged).map(failed);
    for error in others.chain([lost(), denied(), Error::Unusable { problem: "no" }]) {
        let fake = Fake::new();
        let broker = fake.broker();
        broker.send(Ok(credential("1", Duration::from_secs(60)))).unwrap();
        fake.source.ready().await.unwrap();
        broker.send(Err(error.clone())).unwrap();
        until_failure(&fake.source).await;
        sleep(Duration::from_secs(59)).await;
        assert_eq!(generation(&fake.source).as_deref(), Some("1"), "{error:?}");
        sleep(Duration::from_secs(1)).await;
        assert_eq!(generation(&fake.source), None);
    }
}

async fn until_failure(source: &CredentialSource) {
    let mut progress = source.shared.state.progress.subscribe();
    drop(progress.wait_for(|progress| progress.failure.is_some()).await.unwrap());
}
