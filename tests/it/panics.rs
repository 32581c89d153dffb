//! A panic ends the request or the plugin run that it is in, and nothing else.

use std::{
    backtrace::Backtrace,
    sync::{Arc, Mutex},
};

use credbroker_client::Credential;
use credbroker_observe::clock::{Clock, Now, SystemClock};
use credbroker_proto::v1::credential_broker_client::CredentialBrokerClient;
use credbroker_test_support::FakePlugin;
use serde_json::json;
use tonic::Code;

use crate::harness::{InProcess, provider, request, token};

/// Panics once, when the time is read below frames with each of these texts in their name or file.
#[derive(Debug, Default)]
pub(crate) struct Breaks(Mutex<Option<&'static [&'static str]>>);

impl Breaks {
    pub(crate) fn below(&self, frames: &'static [&'static str]) {
        *self.0.lock().unwrap() = Some(frames);
    }

    pub(crate) fn is_armed(&self) -> bool {
        self.0.lock().unwrap().is_some()
    }
}

impl Clock for Breaks {
    fn now(&self) -> Now {
        let is_here = |frames: &mut &[&str]| {
            let trace = Backtrace::force_capture().to_string();
            frames.iter().all(|frame| trace.contains(frame))
        };
        let breaks = self.0.lock().unwrap().take_if(is_here).is_some();
        assert!(!breaks, "broken on purpose");
        SystemClock.now()
    }
}

fn broker(plugin: &FakePlugin) -> (InProcess, Arc<Breaks>) {
    let clock = Arc::new(Breaks::default());
    let sections = json!({"providers": [provider("cloud", plugin)]});
    (InProcess::with_clock(sections, &[], Arc::clone(&clock) as Arc<dyn Clock>), clock)
}

async fn serves(broker: &InProcess, expected: &str) {
    let credential: Credential = broker.get("cloud").await.unwrap();
    assert_eq!(token(&credential), expected);
}

#[tokio::test]
async fn a_panic_in_a_request_ends_that_request_alone() {
    let plugin = FakePlugin::builder().token_per_run().expires_in(3600).build();
    let (broker, clock) = broker(&plugin);
    let mut client = CredentialBrokerClient::new(broker.channel().await);
    let mut get = async || client.get_credential(request("cloud", None, &[])).await;
    for is_in_memory in [false, true] {
        clock.below(&["server::exchange::serve_call"]);
        let status = get().await.unwrap_err();
        assert_eq!(status.code(), Code::Internal, "{is_in_memory}: {status}");
        assert!(!clock.is_armed());
        assert!(get().await.is_ok(), "on the same connection");
    }
    serves(&broker, "token-1").await;
    broker.stop().await;
}

#[tokio::test]
async fn a_panic_in_a_plugin_run_ends_that_run_alone() {
    let plugin = FakePlugin::builder().token_per_run().expires_in(3600).build();
    let (broker, clock) = broker(&plugin);
    serves(&broker, "token-1").await;
    let client = broker.client().await;
    let selector = credbroker_client::admin::Selector::Provider("cloud".into());
    clock.below(&["claim::Claim"]);
    client.admin().refresh(&selector).await.unwrap();
    assert!(!clock.is_armed());
    let states = client.admin().credentials(&selector).await.unwrap();
    let failure = states[0].last_failure.as_ref().unwrap();
    assert!(failure.message.contains("this is a bug in the broker"), "{failure:?}");
    serves(&broker, "token-1").await;
    client.admin().refresh(&selector).await.unwrap();
    let run = plugin.runs();
    serves(&broker, &format!("token-{run}")).await;
    broker.stop().await;
}
