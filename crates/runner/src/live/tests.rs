//! Those of orphans reap every child of their process, so each runs in a separate process.

#![expect(clippy::disallowed_methods, reason = "processes to be reaped, and the reaper, which never ends")]
#![expect(clippy::zombie_processes, reason = "the reaper waits for them")]

use std::{
    fs,
    process::{Child, Command, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    io::AsyncReadExt as _,
    task::yield_now,
    time::{sleep, timeout},
};
use tokio_util::task::TaskTracker;

use super::*;
use crate::{launch::Instruction, process::Launcher};

/// Longer than any machine needs.
const AGES: Duration = Duration::from_secs(60);
/// Set in the separate process.
const ALONE: &str = "CREDBROKER_TEST_ALONE";

/// Runs the test `name` again in a separate process. Returns whether this is that process.
fn is_alone(name: &str) -> bool {
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let mut test = command(std::env::current_exe().unwrap());
    let output = test.args(["--exact", name, "--nocapture"]).env(ALONE, "1").output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && printed.contains("1 passed"),
        "{printed}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    false
}

fn command(program: impl AsRef<std::ffi::OsStr>) -> Command {
    Command::new(program)
}

/// A process that ends when its standard input does.
fn waiting() -> Child {
    command("cat").stdin(Stdio::piped()).spawn().unwrap()
}

/// The state of a process and its session; `None`: it was reaped.
fn state(pid: u32) -> Option<(char, u32)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<_> = stat.rsplit_once(") ")?.1.split(' ').collect();
    Some((fields[0].chars().next()?, fields[3].parse().ok()?))
}

async fn until(what: &str, is_so: impl Fn() -> bool) {
    let wait = async {
        while !is_so() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(AGES, wait).await.unwrap_or_else(|_| panic!("waited in vain: {what}"));
}

#[tokio::test]
async fn the_number_of_a_killed_launcher_is_its_own_until_its_session_has_ended() {
    if !is_alone("live::tests::the_number_of_a_killed_launcher_is_its_own_until_its_session_has_ended") {
        return;
    }
    let (runs, tasks) = (LiveRuns::default(), TaskTracker::new());
    let mut older = waiting();
    // In the place of a launcher: it leads a session, in which its plugin goes on without it.
    let mut program = command("setsid");
    program.args(["sh", "-c", "sleep 300 & echo $!; read -r _"]);
    let (launcher, (mut stdout, _stderr)) = Launcher::start(program, &runs).unwrap();
    let pid = launcher.child.id();
    let mut plugin = String::new();
    while !plugin.ends_with('\n') {
        plugin.push(stdout.read_u8().await.unwrap().into());
    }
    let plugin: u32 = plugin.trim().parse().unwrap();
    let mut younger = waiting();
    tokio::spawn(reap_orphans(runs.clone()));

    kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), Signal::KILL).unwrap();
    until("the launcher has ended", || state(pid).is_none_or(|(state, _)| state == 'Z')).await;
    drop((older.stdin.take(), younger.stdin.take()));
    until("the reaper works", || state(older.id()).is_none()).await;
    assert_eq!(state(pid), Some(('Z', pid)), "no other process can have its number");
    assert_eq!(state(plugin).map(|(_, session)| session), Some(pid), "its session goes on");

    launcher.end(Instruction::End, &tasks).await;
    until("its session has ended, and it is reaped", || state(plugin).is_none() && state(pid).is_none())
        .await;
    until("children that ended after it are reaped", || state(younger.id()).is_none()).await;
    assert!(runs.is_empty());
}

#[expect(
    clippy::await_holding_lock,
    reason = "held as the start of a launcher holds it, on a thread for blocking calls"
)]
#[tokio::test]
async fn nothing_is_reaped_while_a_launcher_is_being_started() {
    if !is_alone("live::tests::nothing_is_reaped_while_a_launcher_is_being_started") {
        return;
    }
    let (runs, mut child) = (LiveRuns::default(), waiting());
    // Its number is not known yet, so it may be that of any child.
    let starting = runs.0.starting.read().unwrap();
    drop(child.stdin.take());
    until("it has ended", || state(child.id()).is_some_and(|(state, _)| state == 'Z')).await;
    runs.reap_others();
    assert!(state(child.id()).is_some());
    tokio::spawn(reap_orphans(runs.clone()));
    yield_now().await;
    assert!(state(child.id()).is_some(), "the reaper has looked and waits");
    drop(starting);
    runs.0.changed.notify_one();
    until("it is reaped", || state(child.id()).is_none()).await;
}

/// No signal notifies the reaper that the launcher was reaped.
#[tokio::test]
async fn children_that_ended_after_a_launcher_are_reaped_once_it_is() {
    if !is_alone("live::tests::children_that_ended_after_a_launcher_are_reaped_once_it_is") {
        return;
    }
    let runs = LiveRuns::default();
    let [mut older, mut launcher, mut younger] = [(); 3].map(|()| waiting());
    let run = runs.add(launcher.id());
    tokio::spawn(reap_orphans(runs.clone()));
    for child in [&mut launcher, &mut younger] {
        drop(child.stdin.take());
        until("it has ended", || state(child.id()).is_none_or(|(state, _)| state == 'Z')).await;
    }
    drop(older.stdin.take());
    until("the reaper has seen the end of all", || state(older.id()).is_none()).await;
    assert!(state(launcher.id()).is_some() && state(younger.id()).is_some());
    launcher.wait().unwrap();
    drop(run);
    until("it is reaped", || state(younger.id()).is_none()).await;
}

#[test]
fn a_process_belongs_to_a_run_while_its_launcher_is_in_the_list() {
    let runs = LiveRuns::default();
    let (own, parent) = (std::process::id(), std::os::unix::process::parent_id());
    assert!(runs.find(own).is_none());
    let (run, same_id) = (runs.clone().add(parent), runs.add(parent));
    assert!(runs.find(own).is_some() && runs.find(parent).is_some());
    drop(run);
    assert!(runs.find(own).is_some(), "the id is in use by another run");
    drop(same_id);
    assert!(runs.find(own).is_none() && runs.is_empty());
}

#[test]
fn the_run_that_the_process_belongs_to_is_the_one_that_gets_the_refusal() {
    let runs = LiveRuns::default();
    let other = runs.add(u32::MAX);
    let (ended, run) = (runs.add(std::process::id()), runs.add(std::process::id()));
    runs.find(std::process::id()).unwrap().refused.cancel();
    assert!(run.run.refused.is_cancelled());
    assert!(!other.run.refused.is_cancelled() && !ended.run.refused.is_cancelled());
}
