//! A plugin that does its worst: the last valid credential is served, and nothing is left of the run.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use credbroker_test_support::{Broker, EvilPlugin, private_directory};
use serde_json::json;

use super::{resident, until};

const PROGRAM: &str = env!("CARGO_BIN_EXE_credbroker");
/// KiB that a broker may have more after a run.
const MORE: u64 = 10 << 10;

fn call(socket: &Path, args: &[&str]) -> Output {
    Command::new(PROGRAM).args(args).arg("--socket").arg(socket).env_clear().output().unwrap()
}

fn descriptors(broker: &Broker) -> usize {
    fs::read_dir(format!("/proc/{}/fd", broker.pid())).unwrap().count()
}

/// The last column of what `get` prints.
fn generation(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout);
    text.split_whitespace().next_back().unwrap_or_default().to_owned()
}

/// The children of a process, zombies included.
fn children(parent: u32) -> usize {
    let stats = fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let id: u32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
        fs::read_to_string(format!("/proc/{id}/stat")).ok()
    });
    let parent = parent.to_string();
    let is_child = |stat: &String| {
        stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.split(' ').nth(1) == Some(&parent))
    };
    stats.filter(is_child).count()
}

/// Lets a plugin be evil in each of these ways, with a separate broker.
fn survive(ways: &[&str]) {
    for way in ways {
        let (plugin, scratch) = (EvilPlugin::new(), private_directory());
        let socket = scratch.path().join("run/broker.sock");
        let variables = [("EVIL_SOCKET", socket.as_path()), ("EVIL_BROKER", Path::new(PROGRAM))];
        let runs = scratch.path().join("runs");
        fs::create_dir(&runs).unwrap();
        let providers = json!([plugin.provider("evil", way, &variables)]);
        let broker = Broker::builder(PROGRAM).providers(&providers).env("TMPDIR", &runs).start();
        std::os::unix::fs::symlink(broker.socket().parent().unwrap(), scratch.path().join("run")).unwrap();
        let get = || call(&broker.socket(), &["get", "--provider", "evil"]);
        let good = get();
        assert!(good.status.success(), "{way}: {good:?}");
        until("the first run has ended", || children(broker.pid()) == 0);
        let (memory, open) = (resident(broker.pid()), descriptors(&broker));

        plugin.turn_evil();
        let refreshed = call(&broker.socket(), &["refresh", "evil"]);
        assert!(!refreshed.status.success(), "{way}: {refreshed:?}");
        assert_eq!(plugin.runs(), 2, "{way}");
        let after = get();
        assert!(after.status.success() && generation(&after) == generation(&good), "{way}: {after:?}");
        until(way, || plugin.processes().is_empty() && children(broker.pid()) == 0);
        until(way, || fs::read_dir(&runs).unwrap().count() == 0);
        until(way, || descriptors(&broker) <= open);
        let more = resident(broker.pid()).saturating_sub(memory);
        assert!(more <= MORE, "{way}: {more} KiB more");
        if *way == "dump" {
            let read = |name: &str| fs::read_to_string(plugin.file(name)).unwrap();
            assert_eq!(read("descriptors"), "0\n1\n2\n3\n");
            let environment = read("environment");
            let own = environment.lines().filter(|line| line.starts_with("CREDBROKER_")).count();
            assert_eq!(own, 1, "the marker of the run and nothing else: {environment}");
        }
        assert_eq!(broker.stop().0.code(), Some(0), "{way}");
    }
}

#[test]
fn floods_and_silence_end_in_time() {
    survive(&["flood", "flood-stderr", "silence"]);
}

#[test]
fn a_plugin_that_stops_or_ignores_sigterm_ends() {
    survive(&["stop", "ignore-sigterm"]);
}

#[test]
fn a_plugin_that_attacks_its_launcher_ends() {
    survive(&["stop-launcher", "kill-launcher"]);
}

#[test]
fn daemons_and_fork_bombs_end() {
    survive(&["daemon", "fork-bomb"]);
}

#[test]
fn files_and_memory_of_a_plugin_are_gone_with_it() {
    survive(&["replace-itself", "allocate", "fill-directory"]);
}

#[test]
fn a_plugin_sees_nothing_of_the_broker_and_cannot_wait_for_itself() {
    survive(&["dump", "call-back"]);
}

#[test]
fn every_way_is_tested() {
    let source = include_str!("evil.rs");
    for way in EvilPlugin::ways() {
        assert!(source.contains(&format!("\"{way}\"")), "{way}");
    }
}
