//! What clients get instead of an answer of an API server.

use std::time::Duration;

use credbroker_proto::v1;
use credbroker_proxy::{Options, Times};
use http::{Request, StatusCode};
use http_body_util::Full;
use insta::assert_snapshot;
use tokio::time::timeout;

use crate::{
    broker::issued,
    setting::{SOON, Setting, cluster, get, status},
};

#[tokio::test]
async fn what_does_not_exist_and_what_is_forbidden_look_alike() {
    let setting = Setting::with_token();
    setting.broker.enlist("tokyo", cluster(&setting.api));
    setting.rights.deny("/clusters/fleet/tokyo");
    let mut answers = Vec::new();
    for target in ["clusters/fleet/rome", "clusters/fleet/tokyo", "contexts/prod-0123456789ab"] {
        let request = Request::get(format!("/{target}/version")).header("host", "127.0.0.1");
        let answer = setting.send(request.body(Full::default()).unwrap()).await;
        let date = |name: &http::HeaderName| *name == http::header::DATE;
        let headers: Vec<_> = answer
            .headers()
            .iter()
            .filter(|(name, _)| !date(name))
            .map(|(n, v)| (n.clone(), v.clone()))
            .collect();
        answers.push((answer.status(), headers, answer.into_body()));
    }
    assert_eq!(answers[0].0, StatusCode::FORBIDDEN);
    assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:?}");
    assert!(setting.api.requests().is_empty());
}

#[tokio::test]
async fn what_is_forbidden_looks_unknown_also_while_the_broker_does_not_know_all_clusters() {
    let setting = Setting::with_token();
    setting.broker.enlist("tokyo", cluster(&setting.api));
    setting.rights.deny("/clusters/fleet/tokyo");
    let ask = |target: &str| {
        let request = Request::get(format!("/clusters/fleet/{target}/version")).header("host", "127.0.0.1");
        setting.send(request.body(Full::default()).unwrap())
    };
    let waits = async |target: &str| timeout(Duration::from_millis(100), ask(target)).await.is_err();
    assert!(!waits("tokyo").await);
    setting.broker.hub_is_synced(false);
    // It has heard of that when an unknown target waits.
    while !waits("rome").await {}
    assert!(waits("tokyo").await);
    setting.broker.hub_is_synced(true);
    assert_eq!(timeout(SOON, ask("tokyo")).await.unwrap().status(), StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn without_a_credential_the_answer_has_the_reason_of_the_broker() {
    let setting = Setting::with_token();
    let failure = v1::Failure {
        reason: v1::ErrorReason::PluginExit.into(),
        message: "provider gke: the plugin ended with exit status 1".into(),
        retry_after: Some(prost_types::Duration { seconds: 7, nanos: 0 }),
        ..v1::Failure::default()
    };
    setting.broker.fail("fleet/paris", Some(failure));
    let answer = setting.get("/version").await;
    assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(answer.headers()["retry-after"], "7");
    let status = status(&answer);
    assert_eq!(status["reason"], "PLUGIN_EXIT");
    assert_snapshot!(status["message"].as_str().unwrap(), @"credbroker: no credential for cluster fleet/paris: provider gke: the plugin ended with exit status 1");
}

#[tokio::test]
async fn a_credential_that_does_not_come_is_not_waited_for_longer() {
    let times = Times { credential: Duration::from_millis(50), ..Times::default() };
    let setting = Setting::with(Options { times, ..Options::default() }, |_| issued("1", None, Some("x")));
    setting.broker.enlist("tokyo", cluster(&setting.api));
    let request = Request::get("/clusters/fleet/tokyo/version").header("host", "127.0.0.1");
    let answer = setting.send(request.body(Full::default()).unwrap()).await;
    assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_snapshot!(status(&answer)["message"].as_str().unwrap(), @"credbroker: no credential for cluster fleet/tokyo: deadline exceeded after 50ms; last: no answer yet, the plugin may be running");
}

#[tokio::test]
async fn a_server_that_is_away_or_silent_is_named_with_the_cause() {
    let times = Times { answer: Duration::from_millis(300), ..Times::default() };
    let setting = Setting::with(Options { times, ..Options::default() }, |api| {
        api.accept_token("token-1");
        issued("1", None, Some("token-1"))
    });
    assert_eq!(setting.get("/version").await.status(), StatusCode::OK);
    setting.api.hang();
    let answer = setting.get("/version").await;
    assert_eq!(answer.status(), StatusCode::GATEWAY_TIMEOUT);
    assert_snapshot!(status(&answer)["message"].as_str().unwrap(), @"credbroker: cluster fleet/paris did not answer within 300ms");
    setting.api.mend();
    setting.api.go_away();
    let answer = setting.get("/version").await;
    assert_eq!(answer.status(), StatusCode::BAD_GATEWAY);
    assert_snapshot!(status(&answer)["message"].as_str().unwrap(), @"credbroker: cannot reach cluster fleet/paris: no connection to 127.0.0.1: tcp connect error: Connection refused (os error 111)");
}

#[tokio::test]
async fn a_server_that_is_not_trusted_gets_no_request() {
    let setting = Setting::with_token();
    let other = credbroker_test_support::ApiServer::start(credbroker_test_support::Accepts::Tokens);
    let wrong = v1::Cluster { server: setting.api.url(), ..cluster(&other) };
    setting.broker.enlist("paris", wrong.clone());
    setting.broker.issue_for("paris", issued("2", None, Some("token-1")), wrong);
    let answer = setting.get("/version").await;
    assert_eq!(answer.status(), StatusCode::BAD_GATEWAY);
    assert_snapshot!(status(&answer)["message"].as_str().unwrap(), @"credbroker: cannot reach cluster fleet/paris: no TLS connection to 127.0.0.1: invalid peer certificate: BadSignature");
    assert!(setting.api.requests().is_empty());
}

#[tokio::test]
async fn errors_of_the_api_server_pass_as_they_are() {
    let setting = Setting::with_token();
    let answer = setting.get("/apis/example.com/v1/foos").await;
    assert_eq!(answer.status(), StatusCode::NOT_FOUND);
    assert!(!String::from_utf8_lossy(answer.body()).contains("credbroker"), "{answer:?}");
}

#[tokio::test]
async fn what_two_programs_could_read_differently_is_not_forwarded() {
    let setting = Setting::with_token();
    for path in ["/api//v1/pods", "/api/v1/../../x", "/api/v1/pods?watch=true&watch=false"] {
        assert_eq!(setting.get(path).await.status(), StatusCode::BAD_REQUEST, "{path}");
    }
    let mut impersonates = get("/version");
    impersonates.headers_mut().insert("impersonate-user", "admin".parse().unwrap());
    assert_eq!(setting.send(impersonates).await.status(), StatusCode::FORBIDDEN);
    assert!(setting.api.requests().is_empty());
}
