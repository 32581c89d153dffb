//! What callers get.

use std::time::Duration;

use credbroker_client::{Code, Credential, Error};
use credbroker_proto::{Reason, v1 as pb};
use credbroker_test_support::FakePlugin;
use serde_json::json;

use crate::harness::{InProcess, provider, token};

const PROGRAM: &str = env!("CARGO_BIN_EXE_credbroker");

#[tokio::test]
async fn a_hundred_callers_at_once_share_one_run() {
    let plugin = FakePlugin::builder().token_per_run().expires_in(3600).sleep(0.3).build();
    let broker = InProcess::start(json!([provider("cloud", &plugin)]));
    let asks = (0..100).map(|_| broker.get("cloud"));
    let answers = futures_join(asks).await;
    let first = answers.first().unwrap().as_ref().unwrap();
    assert_eq!(token(first), "token-1");
    let parts = |credential: &Credential| {
        (credential.generation().to_owned(), token(credential).to_owned(), credential.expires_at())
    };
    assert!(answers.iter().all(|answer| parts(answer.as_ref().unwrap()) == parts(first)));
    assert_eq!(plugin.runs(), 1);
}

/// All of them side by side, in their order.
async fn futures_join<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut running: Vec<_> = futures.map(Box::pin).collect();
    let mut done: Vec<Option<F::Output>> = running.iter().map(|_| None).collect();
    std::future::poll_fn(|cx| {
        for (future, slot) in running.iter_mut().zip(&mut done) {
            if slot.is_none()
                && let std::task::Poll::Ready(output) = future.as_mut().poll(cx)
            {
                *slot = Some(output);
            }
        }
        if done.iter().all(Option::is_some) { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
    done.into_iter().flatten().collect()
}

#[tokio::test]
async fn a_credential_names_its_expiry_lifetime_and_generation() {
    let plugin = FakePlugin::builder().token("secret").expires_in(3600).build();
    let broker = InProcess::start(json!([provider("cloud", &plugin)]));
    let credential = broker.get("cloud").await.unwrap();
    let lifetime = credential.lifetime().unwrap().as_secs();
    assert!((3595..=3600).contains(&lifetime), "{lifetime}");
    let left = credential.expires_at().unwrap().duration_since(std::time::SystemTime::now()).unwrap();
    assert!(left > Duration::from_secs(3590) && left <= Duration::from_secs(3600), "{left:?}");
    assert!(credential.generation().ends_with("-1"), "{}", credential.generation());
    assert!(credential.identity().is_none());
}

#[tokio::test]
async fn callers_get_the_identity_that_their_own_environment_chooses() {
    let plugin = FakePlugin::builder().token_from_shell("${AWS_PROFILE-none}/${OTHER-none}").build();
    let mut cloud = provider("cloud", &plugin);
    cloud["callerEnv"] = json!(["AWS_*"]);
    cloud["passEnv"] = json!(["AWS_*", "OTHER"]);
    let broker =
        InProcess::with(json!({"providers": [cloud]}), &[("AWS_PROFILE", "prod"), ("OTHER", "the-brokers")]);
    let get = async |variables: &[(&str, &str)]| {
        token(&broker.get_with("cloud", None, variables).await.unwrap()).to_owned()
    };
    assert_eq!(get(&[]).await, "none/the-brokers", "callers never get the profile of the broker");
    assert_eq!(get(&[("AWS_PROFILE", "dev")]).await, "dev/the-brokers");
    assert_eq!(
        get(&[("AWS_PROFILE", "dev"), ("OTHER", "mine")]).await,
        "dev/the-brokers",
        "not in callerEnv"
    );
    assert_eq!(get(&[("AWS_PROFILE", "test")]).await, "test/the-brokers");
    assert_eq!(plugin.runs(), 3, "one for each identity");
}

#[tokio::test]
async fn clusters_that_share_a_user_get_each_their_own() {
    let plugin = FakePlugin::builder().token_per_run().build();
    let mut cloud = provider("cloud", &plugin);
    cloud["execConfig"]["provideClusterInfo"] = json!(true);
    let broker = InProcess::start(json!([cloud]));
    let cluster = |config: &'static str| pb::Cluster {
        server: "https://one".into(),
        config: Some(config.into()),
        ..pb::Cluster::default()
    };
    let get =
        async |config| token(&broker.get_with("cloud", Some(cluster(config)), &[]).await.unwrap()).to_owned();
    assert_eq!(get(r#"{"audience":"a"}"#).await, "token-1");
    assert_eq!(get(r#"{"audience":"b"}"#).await, "token-2");
    assert_eq!(get(r#"{"audience":"a"}"#).await, "token-1");
    let infos = plugin.exec_infos();
    assert!(
        infos[0].contains(r#""config":{"audience":"a"}"#)
            && infos[1].contains(r#""config":{"audience":"b"}"#)
    );
    let Err(error) = broker.get("cloud").await else { panic!("no cluster is known") };
    assert_eq!(error.reason(), Some(Reason::InvalidRequest));
}

#[tokio::test]
async fn what_is_held_is_served_on_when_the_plugins_file_is_replaced_or_removed() {
    let plugin = FakePlugin::builder().token_per_run().expires_in(3600).build();
    let broker = InProcess::start(json!([provider("cloud", &plugin)]));
    let first = broker.get("cloud").await.unwrap();
    let new = plugin.dir().join("new");
    std::fs::copy(plugin.path(), &new).unwrap();
    std::fs::rename(new, plugin.path()).unwrap();
    assert_eq!(broker.get("cloud").await.unwrap().generation(), first.generation());
    std::fs::remove_file(plugin.path()).unwrap();
    assert_eq!(broker.get("cloud").await.unwrap().generation(), first.generation());
}

/// Every way in which a plugin can fail, as its caller sees it.
#[tokio::test]
async fn each_failure_has_its_reason_and_shows_nothing_of_the_output() {
    const CANARY: &str = "c4n4ry";
    let json = |rest: &str| {
        format!(
            r#"printf '%s' '{{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential",{rest}}}'"#
        )
    };
    let status = |status: &str| json(&format!(r#""status":{status}"#));
    let table = [
        (
            "PLUGIN_EXIT",
            Code::Unavailable,
            format!("echo {CANARY}; echo 'log in first' >&2; exit 3"),
            "log in first",
        ),
        ("PLUGIN_SIGNAL", Code::Unavailable, format!("echo {CANARY}; kill -9 $$"), "signal 9"),
        ("PLUGIN_TIMEOUT", Code::Unavailable, format!("echo {CANARY}; sleep 60"), "`timeout`"),
        ("OUTPUT_INVALID", Code::Unavailable, format!("echo '{CANARY}: ['"), "not one JSON or YAML document"),
        ("OUTPUT_INVALID", Code::Unavailable, String::new(), "printed nothing"),
        ("OUTPUT_TOO_LARGE", Code::Unavailable, format!("yes {CANARY}"), "1048576"),
        (
            "VERSION_MISMATCH",
            Code::Unavailable,
            r#"echo '{"apiVersion":"client.authentication.k8s.io/v1beta1"}'"#.into(),
            "v1beta1",
        ),
        (
            "NO_CREDENTIAL",
            Code::Unavailable,
            status(&format!(r#"{{"clientCertificateData":"{CANARY}"}}"#)),
            "clientKeyData",
        ),
        ("NO_CREDENTIAL", Code::Unavailable, status("{}"), "neither a token"),
        (
            "BAD_TIMESTAMP",
            Code::Unavailable,
            status(&format!(r#"{{"token":"{CANARY}","expirationTimestamp":"{CANARY}"}}"#)),
            "RFC 3339",
        ),
        (
            "EXPIRED_OUTPUT",
            Code::Unavailable,
            status(&format!(r#"{{"token":"{CANARY}","expirationTimestamp":"2020-01-01T00:00:00Z"}}"#)),
            "expired",
        ),
        (
            "RECURSION",
            Code::FailedPrecondition,
            format!("echo {CANARY}; {PROGRAM} get other --socket \"$(cat $dir/socket)\"; exec sleep 300"),
            "whose user runs the shim",
        ),
    ];
    let plugins: Vec<_> = table.iter().map(|(.., script, _)| FakePlugin::script(script)).collect();
    let providers: Vec<_> = plugins
        .iter()
        .enumerate()
        .map(|(index, plugin)| {
            let mut provider = provider(&format!("p{index}"), plugin);
            if table[index].0 != "RECURSION" {
                provider["timeout"] = json!("2s");
            }
            provider
        })
        .collect();
    let broker = InProcess::start(json!(providers));
    for plugin in &plugins {
        std::fs::write(plugin.dir().join("socket"), broker.socket().to_str().unwrap()).unwrap();
    }
    for (index, (reason, code, _, says)) in table.iter().enumerate() {
        let Err(error) = broker.get(&format!("p{index}")).await else { panic!("{reason}: it must fail") };
        let Error::Failed(failure) = &error else { panic!("{reason}: {error:?}") };
        let message = &failure.message;
        assert_eq!((failure.reason.map(Reason::name), failure.code), (Some(*reason), *code), "{message}");
        assert!(message.contains(says) && message.contains(&format!("provider `p{index}`")), "{message}");
        assert!(!format!("{error:?}").contains(CANARY), "{error:?}");
        assert_eq!(failure.retry_after.is_some(), *code == Code::Unavailable, "{message}");
    }
}

#[tokio::test]
async fn a_request_that_leads_nowhere_says_why() {
    let plugin = FakePlugin::builder().token("t").build();
    let mut gone = provider("gone", &plugin);
    gone["execConfig"]["command"] = json!("/nonexistent/plugin");
    gone["execConfig"]["installHint"] = json!("Install it from the shop.");
    let mut attended = provider("attended", &plugin);
    attended["execConfig"]["interactiveMode"] = json!("Always");
    let broker = InProcess::start(json!([provider("cloud", &plugin), gone, attended]));
    let table = [
        ("clout", "UNKNOWN_PROVIDER", Code::NotFound, "did you mean `cloud`?"),
        ("gone", "PLUGIN_NOT_FOUND", Code::FailedPrecondition, "Install it from the shop."),
        ("attended", "INTERACTION_REQUIRED", Code::FailedPrecondition, "standard input is unavailable"),
        ("", "INVALID_REQUEST", Code::InvalidArgument, "empty"),
    ];
    for (name, reason, code, says) in table {
        let Err(Error::Failed(failure)) = broker.get(name).await else { panic!("{name}: it must fail") };
        let message = &failure.message;
        assert_eq!((failure.reason.map(Reason::name), failure.code), (Some(reason), code), "{message}");
        assert!(message.contains(says), "{message}");
    }
    assert_eq!(plugin.runs(), 0);
}
