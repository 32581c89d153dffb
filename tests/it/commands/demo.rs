//! The demo leaves nothing behind.

use std::{
    fs,
    os::unix::process::ExitStatusExt as _,
    path::Path,
    process::{Command, Stdio},
    thread::sleep,
    time::Duration,
};

use credbroker_test_support::private_directory;
use rustix::process::{Pid, Signal, kill_process};

use super::PROGRAM;

/// The command lines of the processes that have `text` in theirs.
fn processes_with(text: &str) -> Vec<String> {
    let processes = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let lines = processes.filter_map(|process| fs::read(process.path().join("cmdline")).ok());
    lines
        .map(|line| String::from_utf8_lossy(&line).replace('\0', " "))
        .filter(|line| line.contains(text))
        .collect()
}

fn entries(directory: &Path) -> Vec<std::path::PathBuf> {
    fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn ctrl_c_ends_the_demo_and_all_that_it_started() {
    let directory = private_directory();
    let mut demo = Command::new(PROGRAM);
    demo.arg("demo").env("TMPDIR", directory.path()).stdout(Stdio::null());
    let mut demo = demo.spawn().unwrap();
    // The plugin of the cold call has started, and pauses.
    let runs = || entries(directory.path()).iter().any(|demo| demo.join("runs").exists());
    while !runs() {
        assert_eq!(demo.try_wait().unwrap(), None);
        sleep(Duration::from_millis(5));
    }
    let text = directory.path().to_str().unwrap();
    assert!(!processes_with(text).is_empty(), "the shim and the plugin");
    kill_process(Pid::from_child(&demo), Signal::INT).unwrap();
    let status = demo.wait().unwrap();
    assert_eq!((status.code(), status.signal()), (Some(130), None));
    assert_eq!(entries(directory.path()), [""; 0].map(std::path::PathBuf::from));
    assert_eq!(processes_with(text), [""; 0]);
}
