//! A deadline says why there is no credential.

use std::error::Error as _;

use super::*;

#[tokio::test(start_paused = true)]
async fn a_deadline_names_the_credential_and_the_last_failure_and_both_are_found() {
    let fake = Fake::new();
    let changed = failed(Reason::ProviderChanged);
    fake.broker().send(Err(changed)).unwrap();
    let error = fake.source.ready_within(Duration::from_millis(50)).await.unwrap_err();
    insta::assert_snapshot!(
        error,
        @"credbroker: provider p: deadline exceeded after 50ms; last: PROVIDER_CHANGED: no"
    );
    assert!(error.is_timeout() && error.reason() == Some(Reason::ProviderChanged));
    let source = error.source().unwrap().downcast_ref::<Error>().unwrap();
    assert!(matches!(source, Error::Failed(_)), "{source:?}");
}

#[tokio::test(start_paused = true)]
async fn a_deadline_names_an_absent_broker_and_a_run_that_has_not_ended() {
    let fake = Fake::new();
    let error = fake.source.ready_within(Duration::from_secs(1)).await.unwrap_err();
    insta::assert_snapshot!(
        error,
        @"credbroker: provider p: deadline exceeded after 1s; last: no broker answers on /s: the connection was lost (the watch ended)"
    );
    assert!(error.is_timeout() && error.reason().is_none());
    let _running = fake.broker();
    sleep(BROKER_START).await;
    let error = fake.source.ready_within(Duration::from_secs(7)).await.unwrap_err();
    insta::assert_snapshot!(
        error,
        @"credbroker: provider p: deadline exceeded after 7s; last: no answer yet, the plugin may be running"
    );
    assert!(error.source().is_none());
}
