//! Records of requests.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use credbroker_observe::{
    audit::{Audit, AuditSink},
    clock::SystemClock,
    metrics::{Exposition, Proxied},
};
use credbroker_proxy::{Observed, Phase, Records as _};
use http::StatusCode;
use serde_json::{Value, json};

use crate::{
    broker::issued,
    setting::{Setting, WATCH, get, next, post},
};

#[tokio::test]
async fn a_request_has_one_record_and_a_watch_has_two() {
    let setting = Setting::with_token();
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
    let setting = Setting::with_token();
    setting.rights.deny("/clusters/fleet/paris");
    setting.get("/version").await;
    let record = setting.records.until(1).await.remove(0);
    assert_eq!((record.status, record.reason), (Some(403), Some("Forbidden")));
    assert_eq!(record.asked.unwrap().to_string(), "/clusters/fleet/paris");
    assert_eq!((record.target, &*record.attributes.unwrap().path), (None, "/version"));
}

#[derive(Clone, Debug, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

impl AuditSink for Lines {
    fn push(&self, line: &str) {
        self.0.lock().unwrap().push(line.to_owned());
    }

    fn flush(&self, _: Duration) {}
}

#[tokio::test]
async fn no_credential_and_no_value_of_a_query_is_in_an_answer_a_record_or_a_metric() {
    let mut key = String::new();
    let setting = Setting::new(|api| {
        api.accept_token("c4n4ry-token");
        let pair = api.issue_client_certificate("jane", Duration::from_secs(3600));
        key.clone_from(&pair.1);
        issued("1", Some(&pair), Some("c4n4ry-token"))
    });
    let mut answers = Vec::new();
    for path in ["/version", "/nothing", "/api/v1/pods?labelSelector=c4n4ry%3Dquery", "/api//v1", WATCH] {
        answers.push(format!("{:?}", setting.begin(get(path)).await));
    }
    answers.push(format!("{:?}", setting.send(post("{\"c4n4ry\": \"body\"}")).await));
    setting.api.revoke_token("c4n4ry-token");
    setting.api.go_away();
    answers.push(format!("{:?}", setting.get("/version").await));
    let (lines, counts) = (Lines::default(), Arc::<Proxied>::default());
    let audit = Audit::new(Some(Box::new(lines.clone())), Arc::new(SystemClock));
    let observed = Observed { audit, counts: Arc::clone(&counts) };
    for record in setting.records.until(8).await {
        answers.push(format!("{record:?}"));
        observed.push(record);
    }
    let mut metrics = Exposition::default();
    counts.write(&mut metrics, 0);
    let lines = lines.0.lock().unwrap().clone();
    let all = [answers, lines.clone(), vec![metrics.into_text()]].concat().join("\n");
    let secret = key.lines().nth(1).unwrap();
    assert!(!all.contains(secret), "{all}");
    assert!(!all.contains("c4n4ry"), "{all}");
    let first: Value = serde_json::from_str(&lines[0]).unwrap();
    assert_eq!((&first["kind"], &first["target"]), (&"request".into(), &"clusterprofile/fleet/paris".into()));
    assert_eq!((&first["path"], &first["status"]), (&"/version".into(), &200.into()));
}
