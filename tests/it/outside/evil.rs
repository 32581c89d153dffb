//! A plugin that does its worst: the last valid credential is served meanwhile and afterwards, and nothing is left of the
//! run.

use std::{
    fs,
    path::Path,
    process::{Command, Output, Stdio},
};

use credbroker_test_support::{Broker, EvilPlugin, private_directory};
use serde_json::json;

use super::{children, descriptors, resident, until, until_idle};

const PROGRAM: &str = env!("CARGO_BIN_EXE_credbroker");
/// KiB that a broker may have more after a run.
const MORE: u64 = 10 << 10;

fn client(broker: &Broker, args: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(args).arg("--socket").arg(broker.socket()).env_clear().stdout(Stdio::piped());
    command.stderr(Stdio::piped());
    command
}

/// The last column of what `get` prints.
fn generation(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout);
    text.split_whitespace().next_back().unwrap_or_default().to_owned()
}

/// Lets a plugin be evil in each of these ways, with a separate broker, and checks the reason that its run failed.
fn survive(ways: &[(&str, &str)]) {
    for (way, reason) in ways {
        let (plugin, runs) = (EvilPlugin::new(), private_directory());
        let mut provider = plugin.provider("evil", way);
        if *reason != "PLUGIN_TIMEOUT" {
            provider["timeout"] = "60s".into(); // a slow machine must not end it first
        }
        let providers = json!([provider]);
        let broker = Broker::builder(PROGRAM).providers(&providers).env("TMPDIR", runs.path()).start();
        let get = || generation(&client(&broker, &["get", "evil"]).output().unwrap());
        let nothing_is_left = || {
            plugin.processes().is_empty()
                && children(broker.pid()).is_empty()
                && fs::read_dir(runs.path()).unwrap().count() == 0
        };
        let good = get();
        until("the first run has ended", nothing_is_left);
        let (memory, open) = (resident(broker.pid()), descriptors(broker.pid()));

        plugin.turn_evil(Path::new(PROGRAM), &broker.socket());
        let refresh = client(&broker, &["refresh", "evil"]).spawn().unwrap();
        until(way, || plugin.runs() == 2);
        assert_eq!(get(), good, "{way}: meanwhile");
        let refreshed = refresh.wait_with_output().unwrap();
        let message = String::from_utf8_lossy(&refreshed.stdout);
        assert!(!refreshed.status.success() && message.contains(reason), "{way}: {refreshed:?}");
        assert_eq!(get(), good, "{way}: afterwards");
        assert_eq!(plugin.runs(), 2, "{way}");
        until(way, nothing_is_left);
        until(way, || descriptors(broker.pid()) <= open);
        until(way, || resident(broker.pid()) <= memory + MORE);
        until_idle(broker.pid());
        check_what_it_wrote(way, &plugin);
        assert_eq!(broker.stop().0.code(), Some(0), "{way}");
    }
}

fn check_what_it_wrote(way: &str, plugin: &EvilPlugin) {
    let read = |name: &str| fs::read_to_string(plugin.file(name)).unwrap();
    match way {
        "dump" => {
            assert_eq!(read("descriptors"), "0\n1\n2\n3\n", "3 is the directory that ls reads");
            let environment = read("environment");
            let own = environment.lines().filter(|line| line.starts_with("CREDBROKER_")).count();
            assert_eq!(own, 0, "{environment}");
        }
        "call-back" => assert!(read("answer").contains("RECURSION"), "{}", read("answer")),
        _ => {}
    }
}

#[test]
fn floods_and_silence_end_in_time() {
    survive(&[
        ("flood", "OUTPUT_TOO_LARGE"),
        ("flood-stderr", "PLUGIN_TIMEOUT"),
        ("silence", "PLUGIN_TIMEOUT"),
    ]);
}

#[test]
fn a_plugin_that_stops_or_ignores_sigterm_ends() {
    survive(&[("stop", "PLUGIN_TIMEOUT"), ("ignore-sigterm", "PLUGIN_TIMEOUT")]);
}

#[test]
fn a_plugin_that_attacks_its_launcher_ends() {
    survive(&[("stop-launcher", "PLUGIN_TIMEOUT"), ("kill-launcher", "PLUGIN_SIGNAL")]);
}

#[test]
fn daemons_and_fork_bombs_end() {
    survive(&[("daemon", "PLUGIN_EXIT"), ("fork-bomb", "PLUGIN_TIMEOUT")]);
}

#[test]
fn files_and_memory_of_a_plugin_are_gone_with_it() {
    survive(&[
        ("replace-itself", "PLUGIN_EXIT"),
        ("allocate", "PLUGIN_EXIT"),
        ("fill-directory", "PLUGIN_EXIT"),
        ("deep-directory", "PLUGIN_TIMEOUT"),
    ]);
}

#[test]
fn a_plugin_sees_nothing_of_the_broker_and_cannot_wait_for_itself() {
    survive(&[("dump", "PLUGIN_EXIT"), ("call-back", "RECURSION")]);
}

#[test]
fn every_way_is_tested() {
    let source = include_str!("evil.rs");
    for way in EvilPlugin::ways() {
        assert!(source.contains(&format!("(\"{way}\", ")), "{way}");
    }
}
