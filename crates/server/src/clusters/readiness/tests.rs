use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::*;
use credbroker_cache::{CacheParts, Caller, Request};
use credbroker_credential::{Decoded, Material, Token};
use credbroker_fleet::{
    Fleet,
    resolver::{CredentialRequest, Source},
};
use credbroker_observe::clock::{Clock as _, SystemClock};
use credbroker_plugin::{
    Command, PluginKey, PluginSpec, Providers,
    cluster_profile::{ClusterProfile, EndpointRules},
    testing::provider as test_provider,
};
use credbroker_runner::{Attendance, RunError, RunErrorKind, RunOutput};

/// A runner whose result the caller's variable `THEN` selects.
#[derive(Debug)]
struct AsTheCallerSays;

impl PluginRunner for AsTheCallerSays {
    async fn run(&self, spec: Arc<PluginSpec>, _: Arc<Attendance>) -> Result<RunOutput, RunError> {
        match spec.caller_env.get("THEN").map(String::as_str) {
            Some("wait") => std::future::pending().await,
            Some("fail") => {
                Err(RunError { stderr: "no".into(), ..RunError::new("fake", RunErrorKind::Exit(1)) })
            }
            _ => {
                let expires_at = SystemClock.now().wall + Duration::from_secs(3600);
                let token = Token { secret: "t".into(), expires_at: None };
                let material = Material { token: Some(token), pair: None };
                let expires_at = Some::<SystemTime>(expires_at);
                let decoded = Decoded { material, expires_at, warnings: Vec::new() };
                Ok(RunOutput { decoded, file_version: spec.file.version() })
            }
        }
    }
}

fn cache() -> CredentialCache<AsTheCallerSays> {
    CredentialCache::new(CacheParts::for_tests(
        AsTheCallerSays,
        Arc::new(SystemClock),
        &TaskTracker::new(),
        &CancellationToken::new(),
    ))
}

#[tokio::test]
async fn the_best_of_a_profiles_keys_counts() {
    let providers = || Providers::new([test_provider("p", Command::Path("/bin/sh".into()))]);
    let fleet = Arc::new(Fleet::new(Arc::new(providers()), EndpointRules::default()));
    let resolver = Resolver::new(Arc::new(providers()), Some(Arc::clone(&fleet)));
    let cache = cache();
    let cases: [(&[&str], State); 6] = [
        (&["fail", "work", "wait"], State::Ready),
        (&["work", "fail"], State::Ready),
        (&["fail", "wait"], State::Fetching),
        (&["wait", "fail"], State::Fetching),
        (&["fail"], State::Failed),
        (&[], State::Idle),
    ];
    // The order of a profile's keys is random, so enough profiles are needed to see every order.
    for number in 0..16 {
        for (index, (keys, expected)) in cases.iter().enumerate() {
            let name = ProfileName::new("fleet", format!("{index}-{number}"));
            let cluster = json!({"server": "https://a"});
            let status = json!({"accessProviders": [{"name": "p", "cluster": cluster}]});
            fleet.apply(ClusterProfile::read(name.clone(), &Value::Null, &status));
            for (at, then) in (0..).zip(*keys) {
                let source = Source::ClusterProfile(name.clone());
                let mut spec =
                    resolver.resolve(CredentialRequest { source, ..CredentialRequest::default() }).unwrap();
                let PluginKey(mut key) = spec.key;
                key[0] ^= at;
                spec.key = PluginKey(key);
                spec.caller_env.insert("THEN".into(), (*then).into());
                let request = Request::default();
                let asked = cache.get(spec, &request);
                if *then == "wait" {
                    drop(tokio::time::timeout(Duration::from_millis(1), asked).await);
                } else {
                    assert_eq!(asked.await.is_ok(), *then == "work");
                }
            }
            let known = fleet.get(&name).unwrap();
            let readiness = Readiness::of(&cache, &resolver);
            let (state, problem) = readiness.of_profile(&known);
            assert_eq!(state, *expected, "{keys:?}");
            assert_eq!(
                problem.map(|(reason, _)| reason),
                (*expected == State::Failed).then_some(Reason::PluginExit)
            );
        }
    }
}

#[tokio::test]
async fn a_key_for_which_nothing_is_held_does_not_hide_that_the_plugin_is_gone() {
    let providers = |path: &str| Arc::new(Providers::new([test_provider("p", Command::Path(path.into()))]));
    let fleet = Arc::new(Fleet::new(providers("/bin/sh"), EndpointRules::default()));
    let (there, gone) = (
        Resolver::new(providers("/bin/sh"), Some(Arc::clone(&fleet))),
        Resolver::new(providers("/nonexistent/plugin"), Some(Arc::clone(&fleet))),
    );
    let name = ProfileName::new("fleet", "paris");
    let status = json!({"accessProviders": [{"name": "p", "cluster": {"server": "https://a"}}]});
    fleet.apply(ClusterProfile::read(name.clone(), &Value::Null, &status));
    let cache = cache();
    let source = Source::ClusterProfile(name.clone());
    let _watch = cache
        .watch(
            there.resolve(CredentialRequest { source, ..CredentialRequest::default() }).unwrap(),
            Caller::default(),
        )
        .unwrap();
    let known = fleet.get(&name).unwrap();
    let of = |resolver| {
        let readiness = Readiness::of(&cache, resolver);
        let (state, problem) = readiness.of_profile(&known);
        (state, problem.map(|(reason, _)| reason))
    };
    assert_eq!(of(&gone), (State::Idle, None), "no look has found yet that it is not there");
    credbroker_runner::look_up_files(&there.providers());
    credbroker_runner::look_up_files(&gone.providers());
    assert_eq!((cache.len(), of(&there)), (1, (State::Idle, None)));
    assert_eq!(of(&gone), (State::Unusable, Some(Reason::PluginNotFound)));
}
