//! Records as they are written.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path, sync::Arc, time::Duration};

use serde_json::Value;

use super::*;
use crate::clock::{Now, SystemClock};

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

#[tokio::test(start_paused = true)]
async fn requests_over_the_limit_are_counted_within_a_second_even_if_no_other_follows() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.jsonl");
    let audit = Audit::in_file(&path, Arc::new(SystemClock)).unwrap();
    let counter = audit.clone();
    let tasks = tokio_util::task::TaskTracker::new();
    tasks.spawn(async move { counter.count_omitted().await });
    let Destination::File(file) = &audit.inner.as_ref().unwrap().destination else { unreachable!() };
    let ask = |uid, outcome| {
        audit.decision(
            audit.begin(),
            DecisionRecord { user: (uid, uid), outcome, ..decision("provider/gke") },
        );
    };
    for second in 1..=2_usize {
        for _ in 0..100 {
            ask(1, RequestOutcome::Denied);
            ask(1, RequestOutcome::Failed);
            ask(2, RequestOutcome::Allowed);
        }
        ask(2, RequestOutcome::Denied);
        sleep(SECOND * 2).await;
        file.flush(AGES);
        let records = records(&path);
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
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.jsonl");
    let audit = Audit::in_file(&path, Arc::new(SystemClock)).unwrap();
    for _ in 0..1000 {
        audit.decision(audit.begin(), decision("provider/gke"));
        audit.hit(|| decision("provider/gke"));
    }
    audit.flush(AGES);
    let sum = |name: &str| records(&path).iter().filter_map(|record| record[name].as_u64()).sum::<u64>();
    assert_eq!((sum("denials_not_recorded"), sum("hits_not_recorded")), (980, 900));
}

#[test]
fn the_log_has_the_same_counts() {
    let omitted = record::Omitted { uid: Some(1001), denied: 3, failed: 4, hits: 0 };
    assert_eq!(omitted.fields(), "omitted uid=1001 denials_not_recorded=3 failures_not_recorded=4");
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

/// Panics when it is read.
#[derive(Debug)]
struct Broken;

impl Clock for Broken {
    fn now(&self) -> Now {
        panic!("broken on purpose")
    }
}

#[tokio::test]
async fn the_end_of_the_thread_that_writes_is_noticed() {
    if !Path::new("/dev/full").exists() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let file = AuditFile::failing(&directory.path().join("later/audit.jsonl"), Arc::new(Broken));
    file.push("lost");
    file.flush(AGES);
    file.push("has a gap before it, whose time is read");
    tokio::time::timeout(AGES, file.ended()).await.expect("the end is noticed");
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

/// A directory of records, and their file.
fn place() -> (tempfile::TempDir, std::path::PathBuf) {
    let directory = credbroker_test_support::private_directory();
    let path = directory.path().join("audit.jsonl");
    (directory, path)
}

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn refusal(path: &Path) -> String {
    Audit::in_file(path, Arc::new(SystemClock)).unwrap_err().to_string()
}

#[test]
fn a_file_that_other_users_can_change_or_replace_is_refused_with_the_remedy() {
    let (directory, path) = place();
    fs::write(&path, "").unwrap();
    for (file, above, at) in [(0o666, 0o700, &*path), (0o602, 0o700, &path), (0o600, 0o777, directory.path())]
    {
        mode(&path, file);
        mode(directory.path(), above);
        let said = refusal(&path);
        assert!(said.contains(&format!("`chmod go-w {}`, or name another file", at.display())), "{said}");
    }
    for file in [0o600, 0o640, 0o644] {
        mode(directory.path(), 0o755);
        mode(&path, file);
        Audit::in_file(&path, Arc::new(SystemClock)).unwrap();
    }
    fs::remove_file(&path).unwrap();
    mode(directory.path(), 0o777);
    refusal(&path);
    assert!(!path.exists(), "no file is made in such a directory");
    mode(directory.path(), 0o700);
    fs::write(&path, "").unwrap();
    if std::os::unix::fs::chown(&path, Some(3101), None).is_err() {
        println!("SKIPPED: only root can give a file to another user");
        return;
    }
    let said = refusal(&path);
    assert!(said.contains("belongs to uid 3101, who can read or change the records"), "{said}");
    assert!(said.contains(&format!("`chown 0 {}`", path.display())), "{said}");
}

#[test]
fn a_file_in_the_place_of_a_moved_one_is_not_used_if_others_can_change_it() {
    let (directory, path) = place();
    let old = directory.path().join("old");
    let audit = Audit::in_file(&path, Arc::new(SystemClock)).unwrap();
    let record = |target| {
        audit.decision(audit.begin(), decision(target));
        audit.flush(AGES);
    };
    record("one");
    fs::rename(&path, &old).unwrap();
    fs::write(&path, "").unwrap();
    mode(&path, 0o666);
    record("two");
    let targets = |path| records(path).into_iter().map(|record| record["target"].clone()).collect::<Vec<_>>();
    assert_eq!((targets(&old), targets(&path)), (vec!["one".into(), "two".into()], vec![]));
    mode(&path, 0o600);
    record("three");
    assert_eq!(targets(&path), ["three"]);
}

#[test]
fn records_without_a_file_are_lost_and_counted() {
    let (directory, path) = place();
    let audit = Audit::in_file(&path, Arc::new(SystemClock)).unwrap();
    let record = |target| {
        audit.decision(audit.begin(), decision(target));
        audit.flush(AGES);
    };
    fs::remove_file(&path).unwrap();
    mode(directory.path(), 0o777);
    record("one");
    mode(directory.path(), 0o700);
    record("two");
    let records = records(&path);
    assert!(records.iter().any(|record| record["records_lost"] == 1), "{records:?}");
    assert!(records.iter().any(|record| record["target"] == "two"), "{records:?}");
}
