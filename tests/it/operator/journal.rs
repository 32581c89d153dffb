//! The log of a broker whose stderr systemd connected to the journal.

use std::{
    os::unix::{fs::MetadataExt as _, net::UnixDatagram},
    process::Command,
    time::Duration,
};

use credbroker_test_support::{FakePlugin, private_directory, private_file};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use super::PROGRAM;
use crate::harness::provider;

/// Runs a command that sees `$0` as `/run/systemd/journal`.
const IN_MOUNT_NAMESPACE: &str =
    r#"mount --make-rprivate / && mount --bind "$0" /run/systemd/journal && exec "$@""#;

#[test]
fn a_broker_with_the_journal_on_stderr_sends_fields_and_priorities() {
    let directory = private_directory();
    let journal = directory.path().join("journal");
    std::fs::create_dir(&journal).unwrap();
    let journald = UnixDatagram::bind(journal.join("socket")).unwrap();
    journald.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let is_mountable = std::fs::create_dir_all("/run/systemd/journal").is_ok();
    let mut probe = Command::new("unshare");
    probe.args(["--mount", "/bin/sh", "-c", IN_MOUNT_NAMESPACE]).arg(&journal).arg("/bin/true");
    if !is_mountable || !probe.output().is_ok_and(|output| output.status.success()) {
        return eprintln!("SKIPPED: mounting in a namespace needs root and util-linux");
    }
    let plugin = FakePlugin::builder().token("t").build();
    let config = directory.path().join("config.yaml");
    let text = json!({
        "apiVersion": "credbroker.io/v1alpha1", "kind": "BrokerConfig", "providers": [provider("cloud", &plugin)],
    });
    private_file(&config, &text.to_string());
    let stderr = std::fs::File::create(directory.path().join("stderr")).unwrap();
    let metadata = stderr.metadata().unwrap();
    let mut command = Command::new("unshare");
    command.args(["--mount", "/bin/sh", "-c", IN_MOUNT_NAMESPACE]).arg(&journal);
    command.arg(PROGRAM).arg("serve").arg("--config").arg(&config);
    command.arg("--socket").arg(directory.path().join("run/socket"));
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap());
    command.env("JOURNAL_STREAM", format!("{}:{}", metadata.dev(), metadata.ino()));
    let mut broker = command.stderr(stderr).spawn().unwrap();
    let next = || {
        let mut record = [0; 4096];
        let length = journald.recv(&mut record).unwrap();
        String::from_utf8(record[..length].to_vec()).unwrap()
    };
    let record = std::iter::repeat_with(next).find(|record| record.contains("listening on ")).unwrap();
    // `unshare` and the shell have become the broker.
    kill_process(Pid::from_child(&broker), Signal::TERM).unwrap();
    assert!(broker.wait().unwrap().success());
    for line in ["PRIORITY=6", "SYSLOG_IDENTIFIER=credbroker", "TARGET=credbroker::cli::serve"] {
        assert!(record.lines().any(|found| found == line), "{record}");
    }
    let stderr = std::fs::read_to_string(directory.path().join("stderr")).unwrap();
    assert_eq!(stderr, "", "everything is in the journal");
}
