//! Resources that run out. The last valid credential is served meanwhile, and nothing is left behind.

use std::{fs, io, path::Path, process::Command};

use credbroker_test_support::{Broker, FakePlugin, private_directory};
use serde_json::json;

use super::{children, until};
use crate::harness::provider;

const PROGRAM: &str = env!("CARGO_BIN_EXE_credbroker");

/// A file system in memory with few files, until this is dropped.
struct Small<'a>(&'a Path);

impl<'a> Small<'a> {
    fn mount(path: &'a Path) -> Option<Self> {
        let options = "size=64k,nr_inodes=12,mode=700";
        let mount = Command::new("mount").args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(path).output();
        mount.is_ok_and(|mount| mount.status.success()).then_some(Self(path))
    }

    /// Takes all files that are left. Returns their number.
    fn fill(&self) -> usize {
        for number in 0..100 {
            if let Err(error) = fs::write(self.0.join(format!("filler-{number}")), "") {
                assert_eq!(error.kind(), io::ErrorKind::StorageFull);
                return number;
            }
        }
        panic!("it takes more files than its options say");
    }
}

impl Drop for Small<'_> {
    fn drop(&mut self) {
        drop(Command::new("umount").arg("--lazy").arg(self.0).output());
    }
}

fn run(broker: &Broker, args: &[&str]) -> (bool, String) {
    let mut command = Command::new(PROGRAM);
    let output = command.args(args).arg("--socket").arg(broker.socket()).env_clear().output().unwrap();
    (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn a_full_disk_fails_new_runs_only_and_nothing_is_left_behind() {
    let scratch = private_directory();
    let Some(small) = Small::mount(scratch.path()) else {
        println!("SKIPPED: only root can mount a file system");
        return;
    };
    let [cloud, other] = [(), ()].map(|()| FakePlugin::builder().token("t").expires_in(3600).build());
    let providers = json!([provider("cloud", &cloud), provider("other", &other)]);
    let broker = Broker::builder(PROGRAM).providers(&providers).env("TMPDIR", scratch.path()).start();
    let get = |provider| run(&broker, &["shim", "--provider", provider]);
    assert!(get("cloud").0);
    let left = || fs::read_dir(scratch.path()).unwrap().count();
    until("its directory is removed", || left() == 0);

    let fillers = small.fill();
    let (served, message) = get("other");
    assert!(!served && message.contains("cannot make a working directory"), "{message}");
    run(&broker, &["refresh", "cloud"]);
    assert!(get("cloud").0, "it is still valid");
    assert_eq!((cloud.runs(), other.runs()), (1, 0));
    assert_eq!(left(), fillers, "a run that cannot start leaves nothing");

    for number in 0..fillers {
        fs::remove_file(scratch.path().join(format!("filler-{number}"))).unwrap();
    }
    until("others are served again", || get("other").0);
    until("no directory and no process is left", || left() == 0 && children(broker.pid()).is_empty());
    let (status, log) = broker.stop();
    assert_eq!(status.code(), Some(0), "{log}");
}
