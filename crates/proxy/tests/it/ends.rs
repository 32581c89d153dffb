//! Requests that end before they would by themselves.

use std::time::{Duration, Instant};

use credbroker_proto::v1;
use credbroker_proxy::{Limits, Options, Times};
use http::StatusCode;
use serde_json::json;
use tokio::time::timeout;

use crate::{
    broker::issued,
    setting::{SOON, Setting, cluster, get, next, rest, status},
};

const LOG: &str = "/api/v1/namespaces/default/pods?watch=1";

fn token(api: &credbroker_test_support::ApiServer) -> v1::Credential {
    api.accept_token("token-1");
    issued("1", None, Some("token-1"))
}

#[tokio::test]
async fn a_watch_of_a_caller_that_loses_its_right_ends_between_two_events() {
    let setting = Setting::with_token();
    let mut watch = setting.watch().await;
    setting.api.apply_cluster_profile("fleet", "tokyo", json!({}));
    assert!(next(&mut watch).await.is_some());
    setting.rights.deny("/clusters/fleet/paris");
    assert_eq!(rest(watch).await.expect("a clean end"), "");
    let answer = setting.get("/version").await;
    assert_eq!(answer.status(), StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn a_request_without_an_answer_is_cut_when_its_caller_loses_its_right() {
    let setting = Setting::with_token();
    assert_eq!(setting.get("/version").await.status(), StatusCode::OK);
    setting.api.hang();
    let request = setting.send(get("/version"));
    let denied = async {
        let mut open = setting.proxy.open();
        while open.is_empty() {
            tokio::task::yield_now().await;
            open = setting.proxy.open();
        }
        setting.rights.deny("/clusters/fleet/paris");
    };
    let (answer, ()) = tokio::join!(request, denied);
    assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
    setting.api.mend();
}

#[tokio::test]
async fn a_target_that_is_removed_ends_its_watches() {
    let setting = Setting::with_token();
    let watch = setting.watch().await;
    setting.broker.display("paris", None);
    assert_eq!(rest(watch).await.expect("a clean end"), "");
    assert_eq!(setting.get("/version").await.status(), StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn a_withdrawn_credential_ends_the_watches_that_it_began() {
    let setting = Setting::with_token();
    setting.api.accept_token("token-2");
    let watch = setting.watch().await;
    let reason = v1::ErrorReason::ProviderChanged.into();
    setting.broker.fail("fleet/paris", Some(v1::Failure { reason, ..v1::Failure::default() }));
    assert_eq!(rest(watch).await.expect("a clean end"), "");
    setting.rotate(issued("2", None, Some("token-2")));
    setting.broker.fail("fleet/paris", None);
    let answer = async { while setting.get("/version").await.status() != StatusCode::OK {} };
    timeout(SOON, answer).await.unwrap();
    assert_eq!(setting.api.requests().pop().unwrap().token.as_deref(), Some("token-2"));
}

#[tokio::test]
async fn draining_ends_watches_cleanly_and_lets_short_requests_pass() {
    let setting = Setting::with_token();
    let watch = setting.watch().await;
    let drained = timeout(SOON, setting.drain());
    let (end, drained) = tokio::join!(rest(watch), drained);
    assert_eq!(end.expect("a clean end"), "");
    drained.expect("nothing is left");
    assert_eq!(setting.get("/version").await.status(), StatusCode::OK);
    let answer = setting.get(LOG).await;
    assert_eq!(status(&answer)["message"], "credbroker: the proxy is being restarted");
    assert_eq!(answer.headers()["retry-after"], "2");
}

/// client-go takes such a watch for a failure, and lists again.
#[tokio::test]
async fn no_watch_without_an_event_ends_within_its_first_second() {
    let setting = Setting::with_token();
    let began = Instant::now();
    let watch = setting.watch().await;
    let (end, ()) = tokio::join!(rest(watch), setting.drain());
    assert_eq!(end.expect("a clean end"), "");
    assert!(began.elapsed() >= Duration::from_secs(1), "{:?}", began.elapsed());
}

#[tokio::test]
async fn the_requests_of_one_caller_are_limited() {
    let limits = Limits { per_caller: 2, ..Limits::default() };
    let setting = Setting::with(Options { limits, ..Options::default() }, token);
    let (first, _second) = (setting.watch().await, setting.watch().await);
    let answer = setting.get("/version").await;
    let message = "credbroker: 2 requests of this user are open, which is the limit";
    assert_eq!(
        (answer.status(), &status(&answer)["message"]),
        (StatusCode::TOO_MANY_REQUESTS, &message.into())
    );
    drop(first);
    let answer = async { while setting.get("/version").await.status() != StatusCode::OK {} };
    timeout(SOON, answer).await.unwrap();
}

#[tokio::test]
async fn a_stream_other_than_a_watch_is_cut_after_the_time_of_a_drain() {
    let times = Times { drain: Duration::from_millis(50), ..Times::default() };
    let setting = Setting::with(Options { times, ..Options::default() }, token);
    setting.api.flood(credbroker_test_support::Flood::Blanks);
    let mut list = setting
        .begin(get("/apis/multicluster.x-k8s.io/v1alpha1/namespaces/fleet/clusterprofiles"))
        .await
        .into_body();
    assert!(next(&mut list).await.is_some());
    let (end, ()) = tokio::join!(rest(list), setting.drain());
    end.expect_err("it was not whole");
}

#[tokio::test]
async fn an_unread_stream_slows_no_other_request() {
    let setting = Setting::with_token();
    setting.api.flood(credbroker_test_support::Flood::Line);
    let mut unread = Vec::new();
    for _ in 0..3 {
        unread.push(setting.watch().await);
    }
    for _ in 0..50 {
        assert_eq!(setting.get("/version").await.status(), StatusCode::OK);
    }
    for mut stream in unread {
        assert!(next(&mut stream).await.is_some());
    }
}

#[tokio::test]
async fn a_stream_that_its_client_does_not_read_ends_with_the_right_too() {
    let setting = Setting::with_token();
    setting.api.flood(credbroker_test_support::Flood::Line);
    let _unread = setting.watch().await;
    setting.until_buffers_are_full().await;
    setting.rights.deny("/clusters/fleet/paris");
    setting.api.until_open(None, 0).await;
}

#[tokio::test]
async fn a_cluster_that_moves_is_followed() {
    let setting = Setting::with_token();
    assert_eq!(setting.get("/version").await.status(), StatusCode::OK);
    let other = credbroker_test_support::ApiServer::start(credbroker_test_support::Accepts::Tokens);
    other.accept_token("token-2");
    setting.broker.issue_for("paris", issued("2", None, Some("token-2")), cluster(&other));
    let moved = async {
        while other.requests().is_empty() {
            assert_eq!(setting.get("/version").await.status(), StatusCode::OK);
        }
    };
    timeout(SOON, moved).await.unwrap();
    assert_eq!(setting.api.seen_tokens(), ["token-1"], "no credential goes to another cluster");
}
