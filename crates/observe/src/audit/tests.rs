//! Records as they are written.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use serde_json::Value;

use super::*;
use crate::clock::SystemClock;

const AGES: Duration = Duration::from_secs(60);

fn fields(target: &str) -> Fields {
    vec![
        ("target", Some(target.into())),
        ("reason", Some("PEER_DENIED".into())),
        ("uid", Some(1001.into())),
        ("pid", None),
    ]
}

fn deny(audit: &Audit, target: &str) {
    audit.decision(audit.begin(), 1001, ("get", RequestOutcome::Denied), fields(target));
}

/// Keeps the lines.
#[derive(Clone, Debug, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

impl AuditSink for Lines {
    fn push(&self, line: &str) {
        self.0.lock().unwrap().push(line.to_owned());
    }

    fn flush(&self, _: Duration) {}
}

impl Lines {
    /// The records, without their times.
    fn records(&self) -> Vec<Value> {
        let lines = self.0.lock().unwrap();
        let records = lines.iter().map(|line| {
            let mut record: Value = serde_json::from_str(line).unwrap();
            let time = record.as_object_mut().unwrap().remove("time").unwrap();
            assert!(time.as_str().unwrap().ends_with('Z'), "{time}");
            record
        });
        records.collect()
    }
}

fn audit() -> (Audit, Lines) {
    let lines = Lines::default();
    (Audit::new(Some(Box::new(lines.clone())), Arc::new(SystemClock)), lines)
}

#[test]
fn a_record_says_who_asked_for_what_and_how_it_was_decided() {
    let (audit, lines) = audit();
    deny(&audit, "provider/gke");
    audit.hit("get", || fields("provider/gke"));
    audit.run(vec![("provider", Some("gke".into())), ("reason", None)]);
    audit.flush(AGES);
    let mut records = lines.records();
    records[0].as_object_mut().unwrap().remove("duration_ms").unwrap();
    let text: Vec<_> = records.iter().map(ToString::to_string).collect();
    insta::assert_snapshot!(text.join("\n"), @r#"
    {"call":"get","kind":"decision","outcome":"denied","reason":"PEER_DENIED","target":"provider/gke","uid":1001}
    {"call":"get","kind":"decision","outcome":"allowed","reason":"PEER_DENIED","target":"provider/gke","uid":1001}
    {"kind":"run","provider":"gke"}
    "#);
}

#[test]
fn without_a_destination_nothing_is_made() {
    let audit = Audit::default();
    assert_eq!(audit.begin(), None);
    audit.hit("get", || panic!("made"));
    deny(&audit, "x");
    audit.flush(AGES);
}

#[test]
fn hits_over_the_limit_are_counted_in_the_next_record() {
    let (audit, lines) = audit();
    let hits = 10_000;
    for _ in 0..hits {
        audit.hit("get", || fields("provider/gke"));
    }
    deny(&audit, "last");
    audit.flush(AGES);
    let records = lines.records();
    let counted: u64 = records.iter().filter_map(|record| record["hits_not_recorded"].as_u64()).sum();
    assert_eq!(counted + records.len() as u64 - 1, hits);
    assert!(records.len() < 5_000, "{}", records.len());
}

#[tokio::test(start_paused = true)]
async fn requests_over_the_limit_are_counted_within_a_second_even_if_no_other_follows() {
    let (audit, lines) = audit();
    let counter = audit.clone();
    let tasks = tokio_util::task::TaskTracker::new();
    tasks.spawn(async move { counter.count_omitted().await });
    let ask = |uid, outcome| {
        audit.decision(audit.begin(), uid, ("get", outcome), vec![("uid", Some(uid.into()))]);
    };
    for second in 1..=2_usize {
        for _ in 0..100 {
            ask(1, RequestOutcome::Denied);
            ask(1, RequestOutcome::Failed);
            ask(2, RequestOutcome::Allowed);
        }
        ask(2, RequestOutcome::Denied);
        sleep(SECOND * 2).await;
        let records = lines.records();
        let of = |uid: u32, outcome: &str| {
            let is_it = |record: &&Value| record["uid"] == uid && record["outcome"] == outcome;
            records.iter().filter(is_it).count()
        };
        assert_eq!(of(1, "denied") + of(1, "failed"), second * 20);
        assert_eq!((of(2, "allowed"), of(2, "denied")), (second * 100, second));
        let omitted: Vec<_> =
            records.iter().filter(|record| record["kind"] == "omitted").map(ToString::to_string).collect();
        let expected = r#"{"denials_not_recorded":90,"failures_not_recorded":90,"kind":"omitted","uid":1}"#;
        assert_eq!(omitted, vec![expected; second]);
    }
}

#[test]
fn what_is_not_counted_yet_is_counted_when_the_broker_ends() {
    let (audit, lines) = audit();
    for _ in 0..1000 {
        deny(&audit, "provider/gke");
        audit.hit("get", || fields("provider/gke"));
    }
    audit.flush(AGES);
    let sum = |name: &str| lines.records().iter().filter_map(|record| record[name].as_u64()).sum::<u64>();
    assert_eq!((sum("denials_not_recorded"), sum("hits_not_recorded")), (980, 900));
}

#[test]
fn the_log_has_the_same_counts() {
    let omitted = Omitted { uid: Some(1001), recorded: 20, denied: 3, failed: 4, hits: 0 };
    let expected = "omitted uid=1001 denials_not_recorded=3 failures_not_recorded=4";
    assert_eq!(text("omitted", omitted.fields()), expected);
    let expected = "denied get target=provider/gke reason=PEER_DENIED uid=1001";
    assert_eq!(text("denied get", fields("provider/gke")), expected);
}

fn recorded(budgets: &Budgets, uid: u32, outcome: RequestOutcome, requests: u64) -> usize {
    (0..requests).filter(|_| budgets.take(uid, outcome)).count()
}

#[test]
fn a_second_has_so_many_records_of_hits_and_the_rest_is_counted() {
    let budgets = Budgets::default();
    let recorded = || (0..1000).filter(|_| budgets.take_hit()).count();
    assert_eq!(recorded(), 100);
    assert_eq!((budgets.hits_not_recorded(), budgets.hits_not_recorded()), (900, 0));
    assert_eq!(recorded(), 0);
    assert_eq!(budgets.end_second(), [Omitted { hits: 1000, ..Omitted::default() }]);
    assert_eq!(recorded(), 100);
}

#[test]
fn a_uid_has_so_many_refusals_in_a_second_and_takes_nothing_of_others() {
    let (budgets, [allowed, denied, failed]) =
        (Budgets::default(), [RequestOutcome::Allowed, RequestOutcome::Denied, RequestOutcome::Failed]);
    assert_eq!(recorded(&budgets, 1, denied, 1000), 20);
    assert_eq!(recorded(&budgets, 1, failed, 5), 0);
    assert_eq!(recorded(&budgets, 1, allowed, 1000), 1000);
    assert_eq!(recorded(&budgets, 2, failed, 20), 20);
    assert_eq!(
        budgets.end_second(),
        [Omitted { uid: Some(1), recorded: 20, denied: 980, failed: 5, hits: 0 }]
    );
    assert_eq!(recorded(&budgets, 1, denied, 1000), 20);
}

#[test]
fn uids_beyond_the_table_share_one_budget() {
    let budgets = Budgets::default();
    let recorded: usize = (0..10_000).map(|uid| recorded(&budgets, uid, RequestOutcome::Denied, 30)).sum();
    assert_eq!(recorded, (UIDS + 1) * 20);
    let omitted = budgets.end_second();
    assert_eq!(omitted.len(), UIDS + 1);
    assert_eq!(omitted.iter().map(|omitted| omitted.denied).sum::<u64>() + recorded as u64, 300_000);
}

#[test]
fn a_forwarded_request_has_another_kind_of_record_and_too_many_refusals_are_counted() {
    let lines = Lines::default();
    let audit = Audit::new(Some(Box::new(lines.clone())), Arc::new(SystemClock));
    audit.request(1001, RequestOutcome::Allowed, vec![("verb", Some("list".into())), ("name", None)]);
    for _ in 0..30 {
        audit.request(1001, RequestOutcome::Denied, vec![("status", Some(403.into()))]);
    }
    audit.flush(Duration::ZERO);
    let records = lines.records();
    assert_eq!(records[0], serde_json::json!({"kind": "request", "outcome": "allowed", "verb": "list"}));
    assert_eq!(records.len(), 1 + 20 + 1);
    assert_eq!(records[21]["denials_not_recorded"], 10);
}
