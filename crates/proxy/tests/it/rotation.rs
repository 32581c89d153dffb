//! Credentials that change, and those that the API server rejects.

use std::time::Duration;

use http::StatusCode;
use serde_json::json;

use crate::{
    broker::issued,
    setting::{SOON, Setting, WATCH, cluster, get, next, post, rest},
};

#[tokio::test]
async fn a_new_token_changes_nothing_but_the_next_request() {
    let setting = Setting::with_token();
    setting.api.accept_token("token-2");
    let mut watch = setting.watch().await;
    setting.get("/version").await;
    let before = setting.api.requests().pop().unwrap();
    setting.rotate(issued("2", None, Some("token-2")));
    let sent = async {
        while setting.get("/version").await.status() == StatusCode::OK {
            let seen = setting.api.requests().pop().unwrap();
            if seen.token.as_deref() == Some("token-2") {
                return seen;
            }
        }
        panic!("no answer");
    };
    let after = tokio::time::timeout(SOON, sent).await.unwrap();
    assert_eq!(after.connection, before.connection, "the connection stays");
    setting.api.apply_cluster_profile("fleet", "tokyo", json!({}));
    let event = next(&mut watch).await.unwrap();
    assert!(event.starts_with(b"{") && event.ends_with(b"\n"), "{event:?}");
}

#[tokio::test]
async fn a_new_certificate_moves_new_requests_and_a_watch_lives_until_the_old_one_expires() {
    let mut pairs = Vec::new();
    let setting = Setting::new(|api| {
        pairs = vec![
            api.issue_client_certificate("x", Duration::from_secs(6)),
            api.issue_client_certificate("y", Duration::from_secs(3600)),
        ];
        issued("1", pairs.first(), None)
    });
    let mut watch = setting.watch().await;
    setting.rotate(issued("2", pairs.get(1), None));
    let moved = async {
        while !setting.api.seen_certificates().contains(&"y".to_owned()) {
            assert_eq!(setting.get("/version").await.status(), StatusCode::OK);
        }
    };
    tokio::time::timeout(SOON, moved).await.unwrap();
    assert_eq!(setting.api.open_connections(Some("x")), 1, "the watch goes on");
    setting.api.apply_cluster_profile("fleet", "tokyo", json!({}));
    assert!(next(&mut watch).await.is_some());
    // The end of the certificate.
    assert_eq!(rest(watch).await.expect("a clean end"), "");
    setting.api.until_open(Some("x"), 0).await;
    assert_eq!(setting.get("/version").await.status(), StatusCode::OK);
}

#[tokio::test]
async fn a_request_that_is_not_answered_when_its_certificate_expires_is_sent_with_the_next_one() {
    let mut pairs = Vec::new();
    let setting = Setting::new(|api| {
        let lifetimes = [("x", 3), ("y", 6), ("z", 3600)];
        let issue = |(name, seconds)| api.issue_client_certificate(name, Duration::from_secs(seconds));
        pairs = lifetimes.map(issue).into();
        issued("1", pairs.first(), None)
    });
    setting.api.hang();
    let changes = async {
        for (name, generation, next) in [("x", "2", 1), ("y", "3", 2)] {
            setting.api.until_open(Some(name), 1).await;
            setting.rotate(issued(generation, pairs.get(next), None));
            setting.api.until_open(Some(name), 0).await;
        }
        setting.api.mend();
    };
    let (answer, ()) = tokio::join!(setting.send(get("/version")), changes);
    assert_eq!(answer.status(), StatusCode::OK, "{answer:?}");
}

#[tokio::test]
async fn a_watch_ends_with_its_certificate_also_if_no_other_one_comes() {
    let setting = Setting::new(|api| {
        issued("1", Some(&api.issue_client_certificate("x", Duration::from_secs(3))), None)
    });
    assert_eq!(rest(setting.watch().await).await.expect("a clean end"), "");
    setting.api.until_open(Some("x"), 0).await;
}

#[tokio::test]
async fn idle_connections_of_an_old_certificate_are_closed_at_once() {
    let mut pairs = Vec::new();
    let setting = Setting::new(|api| {
        pairs = vec![
            api.issue_client_certificate("x", Duration::from_secs(3600)),
            api.issue_client_certificate("y", Duration::from_secs(3600)),
        ];
        issued("1", pairs.first(), None)
    });
    setting.get("/version").await;
    setting.api.until_open(Some("x"), 1).await;
    setting.rotate(issued("2", pairs.get(1), None));
    setting.api.until_open(Some("x"), 0).await;
}

/// The next credential comes when the first one is reported.
async fn revoked() -> Setting {
    let setting = Setting::with_token();
    setting.api.accept_token("token-2");
    assert_eq!(setting.get("/version").await.status(), StatusCode::OK);
    setting.broker.issue_for_on_report("1", issued("2", None, Some("token-2")), cluster(&setting.api));
    setting.api.revoke_token("token-1");
    setting.api.forget_requests();
    setting
}

#[tokio::test]
async fn after_a_401_the_request_is_sent_again_with_its_body() {
    let setting = revoked().await;
    let body = format!("{{\"kind\": \"SelfSubjectReview\", \"x\": \"{}\"}}", "y".repeat(200 * 1024));
    let answer = setting.send(post(body.clone())).await;
    assert_eq!(answer.status(), StatusCode::CREATED);
    let seen = setting.api.requests();
    let seen: Vec<_> =
        seen.iter().map(|seen| (seen.token.as_deref(), seen.status, seen.body == body)).collect();
    assert_eq!(seen, [(Some("token-1"), 401, true), (Some("token-2"), 201, true)]);
    assert_eq!(setting.broker.reports(), ["1"]);
}

#[tokio::test]
async fn a_body_that_is_too_large_to_keep_is_sent_once_and_the_401_is_the_answer() {
    let setting = revoked().await;
    let answer = setting.send(post(vec![b' '; 300 * 1024])).await;
    assert_eq!(answer.status(), StatusCode::UNAUTHORIZED);
    assert_eq!(setting.api.requests().len(), 1);
    // The report has brought the next one.
    let answer = async { while setting.send(post("{}")).await.status() != StatusCode::CREATED {} };
    tokio::time::timeout(SOON, answer).await.unwrap();
}

#[tokio::test]
async fn a_401_that_stays_is_passed_on_as_it_is() {
    let setting = Setting::with_token();
    setting.api.revoke_token("token-1");
    let answer = setting.get("/version").await;
    assert_eq!(answer.status(), StatusCode::UNAUTHORIZED);
    assert!(!String::from_utf8_lossy(answer.body()).contains("credbroker"), "{answer:?}");
    assert_eq!(setting.broker.reports(), ["1"]);
}

#[tokio::test]
async fn a_401_behind_the_api_server_is_not_reported_and_the_request_not_sent_again() {
    let setting = revoked().await;
    for path in ["/api/v1/namespaces/a/services/x/proxy/m", "/api/v1/nodes/n/proxy/metrics"] {
        assert_eq!(setting.get(path).await.status(), StatusCode::UNAUTHORIZED);
    }
    assert_eq!(setting.api.requests().len(), 2);
    assert!(setting.broker.reports().is_empty());
}

#[tokio::test]
async fn a_watch_that_is_rejected_begins_with_the_next_credential() {
    let setting = revoked().await;
    let answer = setting.begin(get(WATCH)).await;
    assert_eq!(answer.status(), StatusCode::OK);
    let mut watch = answer.into_body();
    setting.api.apply_cluster_profile("fleet", "tokyo", json!({}));
    assert!(next(&mut watch).await.is_some());
}
