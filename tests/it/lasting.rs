//! Callers that need a credential to live for some time.

use std::sync::Arc;

use credbroker_proto::{
    v1::{self as pb, credential_broker_client::CredentialBrokerClient},
    v1alpha1::{
        AttendCredentialRequest, attend_credential_response::Event,
        credential_broker_login_client::CredentialBrokerLoginClient,
    },
};
use credbroker_test_support::{FakePlugin, FakePluginBuilder};
use serde_json::json;
use tonic::{Code, Status, transport::Channel};

use crate::harness::{Ahead, InProcess, provider, request};

/// Needs a credential for ten minutes.
struct Caller {
    rpc: CredentialBrokerClient<Channel>,
    clock: Arc<Ahead>,
    broker: InProcess,
}

fn living(seconds: i64) -> FakePluginBuilder {
    FakePlugin::builder().token_per_run().expires_in(seconds)
}

impl Caller {
    async fn of(plugin: &FakePlugin) -> Self {
        let clock = Arc::new(Ahead::default());
        let providers = json!({"providers": [provider("cloud", plugin)]});
        let broker = InProcess::with_clock(providers, &[], Arc::<Ahead>::clone(&clock));
        Self { rpc: CredentialBrokerClient::new(broker.channel().await), clock, broker }
    }

    async fn ask(&self, seconds: i64) -> Result<pb::GetCredentialResponse, Status> {
        let min_lifetime = Some(prost_types::Duration { seconds, nanos: 0 });
        let request = pb::GetCredentialRequest { min_lifetime, ..request("cloud", None, &[]) };
        Ok(self.rpc.clone().get_credential(request).await?.into_inner())
    }

    /// The token, and whether it is short.
    async fn get(&self) -> (String, bool) {
        let answer = self.ask(600).await.unwrap();
        (answer.credential.unwrap().token.unwrap(), answer.is_short)
    }
}

fn answer(token: &str, is_short: bool) -> (String, bool) {
    (token.to_owned(), is_short)
}

#[tokio::test]
async fn a_plugin_that_can_do_better_runs_once_for_all_callers() {
    let plugin = living(1000).build();
    let caller = Caller::of(&plugin).await;
    assert_eq!(caller.get().await, answer("token-1", false));
    assert_eq!((caller.get().await, plugin.runs()), (answer("token-1", false), 1));
    // The plugin does not have the clock of the broker.
    plugin.becomes(&living(2000).sleep(0.3));
    caller.clock.put(500);
    let answers = tokio::join!(caller.get(), caller.get(), caller.get(), caller.get());
    let better = || answer("token-2", false);
    assert_eq!(answers, (better(), better(), better(), better()));
    assert_eq!(plugin.runs(), 2);
}

#[tokio::test]
async fn a_plugin_that_cannot_do_better_runs_again_after_a_while() {
    let plugin = living(240).build();
    let caller = Caller::of(&plugin).await;
    for _ in 0..3 {
        assert_eq!((caller.get().await, plugin.runs()), (answer("token-1", true), 1));
    }
    plugin.becomes(&living(240).exit_code(1));
    caller.clock.put(80);
    assert_eq!((caller.get().await, plugin.runs()), (answer("token-1", true), 2), "it failed");
    plugin.becomes(&living(2000));
    caller.clock.put(10);
    assert_eq!((caller.get().await, plugin.runs()), (answer("token-3", false), 3));
}

/// As a command at a terminal does.
#[tokio::test]
async fn a_caller_that_attends_the_run_needs_a_lifetime_too() {
    let plugin = living(1000).build();
    let caller = Caller::of(&plugin).await;
    let attend = async |seconds| {
        let min_lifetime = Some(prost_types::Duration { seconds, nanos: 0 });
        let r#ref = request("cloud", None, &[]).r#ref;
        let request = AttendCredentialRequest { r#ref, min_lifetime, ..Default::default() };
        let mut login = CredentialBrokerLoginClient::new(caller.broker.channel().await);
        let mut events = login.attend_credential(request).await.unwrap().into_inner();
        loop {
            if let Some(Event::Credential(got)) = events.message().await.unwrap().unwrap().event {
                return answer(got.credential.unwrap().token(), got.is_short);
            }
        }
    };
    assert_eq!(attend(600).await, answer("token-1", false));
    assert_eq!(attend(2000).await, answer("token-1", true));
    caller.clock.put(500);
    plugin.becomes(&living(2000));
    assert_eq!((attend(600).await, plugin.runs()), (answer("token-2", false), 2));
}

#[tokio::test]
async fn a_min_lifetime_that_is_negative_is_refused() {
    let plugin = living(240).build();
    let caller = Caller::of(&plugin).await;
    let refused = caller.ask(-1).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    insta::assert_snapshot!(refused.message(), @"`min_lifetime` must be a duration that is not negative, with `nanos` below 1,000,000,000 (INVALID_REQUEST)");
    assert_eq!(plugin.runs(), 0);
}
