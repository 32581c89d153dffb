//! Records of requests.

use credbroker_proxy::Phase;
use http::StatusCode;
use serde_json::json;

use crate::setting::{Setting, next, post};

#[tokio::test]
async fn a_request_has_one_record_and_a_watch_has_two() {
    let setting = Setting::with_token().await;
    let answer = setting.send(post("{\"kind\": \"SelfSubjectReview\"}")).await;
    assert_eq!(answer.status(), StatusCode::CREATED);
    let record = setting.records.until(1).await.remove(0);
    assert_eq!((record.phase, record.status), (Phase::Whole, Some(201)));
    assert_eq!((record.up, record.down), (29, answer.body().len() as u64));
    assert_eq!(record.generation.as_deref(), Some("1"));
    assert_eq!(record.target.unwrap().path(), "/clusters/fleet/paris");
    let attributes = record.attributes.unwrap();
    assert_eq!((&*attributes.verb, &*attributes.resource), ("create", "selfsubjectreviews"));
    assert_eq!(record.audit_id.len(), 36);

    let mut watch = setting.watch().await;
    let record = setting.records.until(2).await.remove(1);
    assert_eq!((record.phase, record.status, record.down), (Phase::Begin, Some(200), 0));
    setting.api.apply_cluster_profile("fleet", "tokyo", json!({}));
    let event = next(&mut watch).await.unwrap();
    drop(watch);
    let end = setting.records.until(3).await.remove(2);
    assert_eq!((end.phase, end.down, end.audit_id), (Phase::End, event.len() as u64, record.audit_id));
}

#[tokio::test]
async fn a_refused_request_has_a_record_with_the_reason() {
    let setting = Setting::with_token().await;
    setting.rights.deny("/clusters/fleet/paris");
    setting.get("/version").await;
    let record = setting.records.until(1).await.remove(0);
    assert_eq!((record.status, record.reason), (Some(403), Some("Forbidden")));
}
