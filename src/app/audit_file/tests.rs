//! Records in files.

use std::os::unix::fs::PermissionsExt as _;

use credbroker_observe::clock::{Now, SystemClock};
use serde_json::{Value, json};

use super::*;

const AGES: Duration = Duration::from_secs(60);

fn start(path: &Path) -> io::Result<AuditFile> {
    AuditFile::start(path, Arc::new(SystemClock))
}

/// One whose disk is full until a file can be made at `path`.
fn failing(path: &Path, clock: Arc<dyn Clock>) -> AuditFile {
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    AuditFile::write_to(full, path, clock).unwrap()
}

/// Writes a record of `target`.
fn write(file: &AuditFile, target: &str) {
    file.push(&json!({"time": "Z", "target": target}).to_string());
    file.flush(AGES);
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
fn a_file_that_is_moved_is_begun_again() {
    let directory = tempfile::tempdir().unwrap();
    let (path, old) = (directory.path().join("audit.jsonl"), directory.path().join("old"));
    let file = start(&path).unwrap();
    write(&file, "one");
    fs::rename(&path, &old).unwrap();
    write(&file, "two");
    let targets = |path| records(path).into_iter().map(|record| record["target"].clone()).collect::<Vec<_>>();
    assert_eq!((targets(&old), targets(&path)), (vec!["one".into()], vec!["two".into()]));
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn lines_that_cannot_be_written_are_a_gap_with_their_number() {
    if !Path::new("/dev/full").exists() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("later/audit.jsonl");
    let file = failing(&path, Arc::new(SystemClock));
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
    let file = failing(&directory.path().join("later/audit.jsonl"), Arc::new(Broken));
    file.push("lost");
    file.flush(AGES);
    file.push("has a gap before it, whose time is read");
    tokio::time::timeout(AGES, file.ended()).await.expect("the end is noticed");
}

#[test]
fn what_cannot_be_a_file_of_records_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    assert!(start(directory.path()).is_err());
    let link = directory.path().join("link");
    std::os::unix::fs::symlink("/etc/passwd", &link).unwrap();
    assert!(start(&link).is_err());
    assert!(start(&directory.path().join("none/audit")).is_err());
}

/// A directory of records, and their file.
fn place() -> (tempfile::TempDir, std::path::PathBuf) {
    let directory = credbroker_test_support::private_directory();
    let path = directory.path().join("audit.jsonl");
    (directory, path)
}

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

fn refusal(path: &Path) -> String {
    start(path).unwrap_err().to_string()
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
        start(&path).unwrap();
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
    let file = start(&path).unwrap();
    let record = |target| write(&file, target);
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
    let file = start(&path).unwrap();
    let record = |target| write(&file, target);
    fs::remove_file(&path).unwrap();
    mode(directory.path(), 0o777);
    record("one");
    mode(directory.path(), 0o700);
    record("two");
    let records = records(&path);
    assert!(records.iter().any(|record| record["records_lost"] == 1), "{records:?}");
    assert!(records.iter().any(|record| record["target"] == "two"), "{records:?}");
}
