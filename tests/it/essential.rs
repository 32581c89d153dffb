//! A broker that can no longer do its work ends, so that its supervisor starts it again.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use credbroker::clock::{Clock, Now, SystemClock};
use credbroker_test_support::FakePlugin;
use serde_json::json;
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};

use crate::harness::{InProcess, provider};

/// Panics on demand in the task that reads the time.
#[derive(Debug, Default)]
struct Breaks(AtomicBool);

impl Clock for Breaks {
    fn now(&self) -> Now {
        assert!(!self.0.load(Ordering::SeqCst), "broken on purpose");
        SystemClock.now()
    }
}

#[tokio::test]
async fn a_broker_that_no_longer_refreshes_says_so_and_ends() {
    let plugin = FakePlugin::builder().token("t").expires_in(3600).build();
    let clock = Arc::new(Breaks::default());
    let sections = json!({"providers": [provider("cloud", &plugin)]});
    let broker = InProcess::with_clock(sections, &[], Arc::clone(&clock) as Arc<dyn Clock>);
    broker.get("cloud").await.unwrap();
    let channel = broker.channel().await;
    let mut watch =
        HealthClient::new(channel).watch(HealthCheckRequest::default()).await.unwrap().into_inner();
    assert_eq!(watch.message().await.unwrap().unwrap().status(), ServingStatus::Serving);
    clock.0.store(true, Ordering::SeqCst);
    assert_eq!(broker.ended().await, "credential refresher");
    assert_eq!(watch.message().await.unwrap().unwrap().status(), ServingStatus::NotServing);
}
