use std::time::Duration;

use credbroker_proto::v1 as pb;
use futures_util::StreamExt as _;
use prost::Message as _;
use serde_json::{Value, json};
use tokio::time::timeout;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::*;
use crate::preencoded::{self, MessageStream};
use credbroker_cache::{self as cache, CacheParts, CredentialCache};
use credbroker_credential::{Decoded, Material, Token};
use credbroker_fleet::{
    Fleet,
    resolver::{Resolver, Source},
};
use credbroker_observe::clock::{Clock as _, SystemClock};
use credbroker_plugin::{
    Command, PluginSpec, ProfileName, Providers,
    cluster_profile::{ClusterProfile, EndpointRules},
    testing::provider as test_provider,
};
use credbroker_runner::{Attendance, RunError, RunOutput};
use credbroker_uds_server::WatchSlots;

/// A runner whose token is the cluster's server.
#[derive(Debug)]
pub(crate) struct ServerAsToken;

impl PluginRunner for ServerAsToken {
    async fn run(&self, spec: Arc<PluginSpec>, _: Arc<Attendance>) -> Result<RunOutput, RunError> {
        let server = spec.target.as_ref().map(|target| target.endpoint.server.clone()).unwrap_or_default();
        let expires_at = SystemClock.now().wall + Duration::from_secs(3600);
        let token = Token { secret: server.into(), expires_at: None };
        let material = Material { token: Some(token), pair: None };
        let decoded = Decoded { material, expires_at: Some(expires_at), warnings: Vec::new() };
        Ok(RunOutput { decoded, file_version: spec.file.version() })
    }
}

fn apply(fleet: &Fleet, server: &str) {
    let cluster = json!({"server": format!("https://{server}")});
    let status = json!({"accessProviders": [{"name": "p", "cluster": cluster}]});
    fleet.apply(ClusterProfile::read(ProfileName::new("fleet", "paris"), &Value::Null, &status));
}

async fn message(messages: &mut MessageStream<Bytes>) -> pb::WatchCredentialResponse {
    let frame = messages.next().await.unwrap().unwrap();
    pb::WatchCredentialResponse::decode(preencoded::message(&frame).unwrap()).unwrap()
}

/// Each change happens before the watch checks for changes.
#[tokio::test(start_paused = true)]
async fn a_profile_that_goes_and_comes_back_is_followed_on() {
    let providers = Arc::new(Providers::new([test_provider("p", Command::Path("/bin/sh".into()))]));
    let fleet = Arc::new(Fleet::new(Arc::clone(&providers), EndpointRules::default()));
    let resolver = Arc::new(Resolver::new(providers, Some(Arc::clone(&fleet))));
    let cache = CredentialCache::new(CacheParts {
        encode: crate::encode,
        ..CacheParts::for_tests(
            ServerAsToken,
            Arc::new(SystemClock),
            &TaskTracker::new(),
            &CancellationToken::new(),
        )
    });
    fleet.set_hub(true, None);
    apply(&fleet, "a");
    let name = ProfileName::new("fleet", "paris");
    let ask =
        CredentialRequest { source: Source::ClusterProfile(name.clone()), ..CredentialRequest::default() };
    let slot = WatchSlots::new(CancellationToken::default()).acquire().unwrap();
    let held = cache.clone();
    let broker = Broker::for_tests(cache, Arc::clone(&resolver));
    let profile = pb::ClusterProfileRef { namespace: "fleet".into(), name: "paris".into() };
    let source = Some(pb::credential_ref::Source::ClusterProfile(profile));
    let reference = WatchedReference::new(Some(&pb::CredentialRef { source, ..Default::default() }));
    let following = CredentialStream::start(broker, reference, Access::of_the_owner(), slot).await.unwrap();
    let mut messages = preencoded::tests::messages(following.body());
    let first = message(&mut messages).await.credential.unwrap();
    for _ in 0..3 {
        assert!(fleet.remove(&name));
        held.forget(&name, None);
        apply(&fleet, "a");
        let again = message(&mut messages).await.credential.unwrap();
        assert_ne!(again.generation, first.generation);
        let shared =
            held.get(resolver.resolve(ask.clone()).unwrap(), &cache::Request::default()).await.unwrap();
        assert_eq!(shared.generation.to_string(), again.generation);
    }
    let quiet = timeout(Duration::from_secs(30), messages.next()).await;
    assert!(quiet.is_err(), "nothing more is sent, and the profile is waited for");
    apply(&fleet, "b");
    let moved = message(&mut messages).await;
    assert_eq!(
        (moved.cluster.unwrap().server, moved.credential.unwrap().token),
        ("https://b".into(), Some("https://b".into()))
    );
    assert!(fleet.remove(&name));
    assert_eq!(messages.next().await.unwrap().unwrap_err().code(), Code::NotFound);
    assert!(messages.next().await.is_none());
}
