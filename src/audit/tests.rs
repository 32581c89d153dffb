//! Records as they are written.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path, sync::Arc, time::Duration};

use serde_json::Value;

use super::*;
use crate::clock::SystemClock;

const AGES: Duration = Duration::from_secs(60);

fn decision(target: &str) -> DecisionRecord<'_> {
    DecisionRecord {
        listener: "default",
        user: (1001, 1002),
        pid: Some(7),
        executable: Some(Path::new("/usr/bin/kubectl")),
        call: "get",
        target: Some(target.to_owned()),
        outcome: RequestOutcome::Denied,
        reason: Some("PEER_DENIED".into()),
        generation: None,
        took: None,
    }
}

/// The records in `path`, without their times.
fn records(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    let records = text.lines().map(|line| {
        let mut record: Value = serde_json::from_str(line).unwrap();
        let time = record.as_object_mut().unwrap().remove("time").unwrap();
        assert!(time.as_str().unwrap().ends_with('Z'), "{time}");
        record
    });
    records.collect()
}

#[test]
fn a_record_says_who_asked_for_what_and_how_it_was_decided() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.jsonl");
    let audit = Audit::in_file(&path, Arc::new(SystemClock)).unwrap();
    audit.decision(audit.begin(), decision("provider/gke\n\u{202e}"));
    audit.hit(|| DecisionRecord {
        outcome: RequestOutcome::Allowed,
        reason: Some("rule".into()),
        generation: Some("e-1".into()),
        pid: None,
        executable: None,
        ..decision("provider/gke")
    });
    let cluster_profile = Some("fleet/paris".to_owned());
    let run = |result| PluginRun {
        provider: "gke",
        key: "abab".into(),
        cluster_profile: cluster_profile.clone(),
        result,
        took: Some(Duration::from_millis(1500)),
    };
    audit.run(&run(Ok("e-2".into())));
    audit.run(&run(Err("PLUGIN_EXIT".into())));
    audit.flush(AGES);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let mut records = records(&path);
    records[0].as_object_mut().unwrap().remove("duration_ms").unwrap();
    let lines: Vec<_> = records.iter().map(ToString::to_string).collect();
    insta::assert_snapshot!(lines.join("\n"), @r#"
    {"call":"get","executable":"/usr/bin/kubectl","gid":1002,"kind":"decision","listener":"default","outcome":"denied","pid":7,"reason":"PEER_DENIED","target":"provider/gke\\n\\u{202e}","uid":1001}
    {"call":"get","generation":"e-1","gid":1002,"kind":"decision","listener":"default","outcome":"allowed","reason":"rule","target":"provider/gke","uid":1001}
    {"cluster_profile":"fleet/paris","duration_ms":1500,"generation":"e-2","key":"abab","kind":"run","outcome":"issued","provider":"gke"}
    {"cluster_profile":"fleet/paris","duration_ms":1500,"key":"abab","kind":"run","outcome":"failed","provider":"gke","reason":"PLUGIN_EXIT"}
    "#);
}

#[test]
fn without_a_destination_nothing_is_made() {
    let audit = Audit::default();
    assert_eq!(audit.begin(), None);
    audit.hit(|| panic!("made"));
    audit.decision(None, decision("x"));
    audit.flush(AGES);
}

#[test]
fn hits_over_the_limit_are_counted_in_the_next_record() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.jsonl");
    let audit = Audit::in_file(&path, Arc::new(SystemClock)).unwrap();
    let hits = 10_000;
    for _ in 0..hits {
        audit.hit(|| decision("provider/gke"));
    }
    audit.decision(audit.begin(), decision("last"));
    audit.flush(AGES);
    let records = records(&path);
    let counted: u64 = records.iter().filter_map(|record| record["hits_not_recorded"].as_u64()).sum();
    assert_eq!(counted + records.len() as u64 - 1, hits);
    assert!(records.len() < 5_000, "{}", records.len());
}

#[test]
fn a_file_that_is_moved_is_begun_again() {
    let directory = tempfile::tempdir().unwrap();
    let (path, old) = (directory.path().join("audit.jsonl"), directory.path().join("old"));
    let audit = Audit::in_file(&path, Arc::new(SystemClock)).unwrap();
    audit.decision(audit.begin(), decision("one"));
    audit.flush(AGES);
    fs::rename(&path, &old).unwrap();
    audit.decision(audit.begin(), decision("two"));
    audit.flush(AGES);
    let targets = |path| records(path).into_iter().map(|record| record["target"].clone()).collect::<Vec<_>>();
    assert_eq!((targets(&old), targets(&path)), (vec!["one".into()], vec!["two".into()]));
}

#[test]
fn lines_that_cannot_be_written_are_a_gap_with_their_number() {
    if !Path::new("/dev/full").exists() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("later/audit.jsonl");
    let file = AuditFile::failing(&path, Arc::new(SystemClock));
    for _ in 0..3 {
        file.push("lost");
    }
    file.flush(AGES);
    fs::create_dir(directory.path().join("later")).unwrap();
    file.push("{\"time\": \"Z\"}");
    file.flush(AGES);
    let lost: u64 = records(&path).iter().filter_map(|record| record["records_lost"].as_u64()).sum();
    assert_eq!(lost, 3);
}

#[test]
fn what_cannot_be_a_file_of_records_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    assert!(Audit::in_file(directory.path(), Arc::new(SystemClock)).is_err());
    let link = directory.path().join("link");
    std::os::unix::fs::symlink("/etc/passwd", &link).unwrap();
    assert!(Audit::in_file(&link, Arc::new(SystemClock)).is_err());
    assert!(Audit::in_file(&directory.path().join("none/audit"), Arc::new(SystemClock)).is_err());
}
