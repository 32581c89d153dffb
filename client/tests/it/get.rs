//! One call for a credential.

use std::{collections::HashMap, error::Error as _, time::Duration};

use credbroker_client::{Broker, CredentialRef, Error, Reason, Socket};
use credbroker_proto::{DOMAIN, to_tonic};
use tonic::Status;
use tonic_types::{ErrorDetails, StatusExt};

use crate::broker::{FakeBroker, token};

fn gke() -> CredentialRef {
    CredentialRef::provider("gke")
}

fn status(reason: Reason, message: &str) -> Status {
    let details = ErrorDetails::with_error_info(reason.name(), DOMAIN, HashMap::new());
    Status::with_error_details(to_tonic(reason.code()), message, details)
}

#[tokio::test]
async fn a_credential_is_one_call_also_of_a_broker_that_starts_later() {
    let mut broker = FakeBroker::start();
    broker.issue("gke", token("1"));
    let asking = broker.to();
    assert_eq!(asking.credential(&gke()).await.unwrap().generation(), "1");
    broker.kill();
    broker.issue("gke", token("2"));
    let reference = gke();
    let mut call = std::pin::pin!(asking.credential(&reference));
    assert!(futures_util::poll!(&mut call).is_pending());
    broker.restart();
    assert_eq!(call.await.unwrap().generation(), "2");
}

#[tokio::test]
async fn a_program_says_how_long_the_credential_has_to_live() {
    let broker = FakeBroker::start();
    broker.issue("gke", token("1"));
    let asking = broker.to();
    asking.credential_for(&gke(), Duration::from_secs(600)).await.unwrap();
    assert_eq!(broker.min_lifetime(), Some(Duration::from_secs(600)));
    asking.credential(&gke()).await.unwrap();
    assert_eq!(broker.min_lifetime(), None);
}

#[tokio::test]
async fn a_refusal_is_the_error_and_a_run_that_takes_longer_than_the_deadline_is_a_timeout_with_its_reason() {
    let broker = FakeBroker::start();
    broker.refuse("gke", status(Reason::PluginTimeout, "gke: ran longer than 30s"));
    let error = broker.to().credential(&gke()).await.unwrap_err();
    assert_eq!((error.reason(), error.is_timeout()), (Some(Reason::PluginTimeout), false), "{error}");

    broker.refuse("gke", status(Reason::RunPending, "gke: the plugin has run for 2s"));
    let error = broker.to().timeout(Duration::from_secs(2)).credential(&gke()).await.unwrap_err();
    assert_eq!((error.reason(), error.is_timeout()), (Some(Reason::RunPending), true), "{error}");
    insta::assert_snapshot!(
        error,
        @"credbroker: provider gke: deadline exceeded after 2s; last: RUN_PENDING: gke: the plugin has run for 2s"
    );
}

#[tokio::test]
async fn a_deadline_before_there_is_a_broker_says_that_none_answers() {
    let absent = Broker::at(Socket::at("/nonexistent/socket")).timeout(Duration::from_millis(300));
    let error = absent.credential(&gke()).await.unwrap_err();
    insta::assert_snapshot!(
        error,
        @"credbroker: provider gke: deadline exceeded after 300ms; last: no broker answers on /nonexistent/socket: No such file or directory (os error 2)"
    );
    let last = error.source().unwrap().downcast_ref::<Error>().unwrap();
    assert!(matches!(last, Error::Unreachable { .. }) && last.source().is_some());
}
