//! Many runs: limits and leaks.

use std::{
    num::NonZeroUsize,
    sync::atomic::{AtomicUsize, Ordering},
};

use tokio::{sync::Barrier, task::JoinSet};

use super::*;
use credbroker_observe::clock::SystemClock;
use credbroker_plugin::Issuer;
use credbroker_runner::{RunSource, Scheduler, Urgency};

#[tokio::test]
async fn runs_of_a_provider_are_limited_and_all_of_them_start() {
    let mut plugin = Plugin::script("echo token");
    plugin.provider.issuer = Arc::new(Issuer::new("idp", NonZeroUsize::new(2).unwrap()));
    let (started, spec) = plugin.spec();
    let started = Arc::new(started);
    let scheduler = Scheduler::new(8, Arc::new(SystemClock), || 0.5);
    let timer = scheduler.clone();
    let mut runs = JoinSet::new();
    let mut timers = JoinSet::new();
    timers.spawn(async move { timer.keep_time().await });
    // Each run waits for a second one, so that two always run at a time.
    let (pair, counts) = (Arc::new(Barrier::new(2)), Arc::new((AtomicUsize::new(0), AtomicUsize::new(0))));
    for _ in 0..10 {
        let (started, spec) = (Arc::clone(&started), Arc::clone(&spec));
        let (pair, counts) = (Arc::clone(&pair), Arc::clone(&counts));
        let ticket = scheduler.enter(&spec.provider, Urgency::Background, RunSource::Configuration(spec.key));
        runs.spawn(async move {
            let _permit = ticket.turn().await.unwrap();
            let (now, most) = &*counts;
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            pair.wait().await;
            let length = started.runner.stdout(&spec, Arc::default()).await.map(|(stdout, _)| stdout.len());
            now.fetch_sub(1, Ordering::SeqCst);
            length
        });
    }
    let lengths = timeout(AGES, runs.join_all()).await.expect("all have their turn");
    assert!(lengths.into_iter().all(|length| length.unwrap() == 6));
    assert_eq!(counts.1.load(Ordering::SeqCst), 2);
}

/// Other tests run at the same time, so the number varies a little. A leak would add three hundred.
#[tokio::test]
async fn three_hundred_runs_leave_no_process_and_no_descriptor() {
    let home = private_directory();
    let path = home.path().join("leak-probe");
    std::os::unix::fs::symlink("/bin/true", &path).unwrap();
    let (started, spec) = Plugin::program(home, path).spec();
    let before = descriptors();
    for _ in 0..300 {
        started.runner.stdout(&spec, Arc::default()).await.unwrap();
    }
    started.leaves_nothing().await;
    let after = descriptors();
    assert!(after < before + 150, "{before} descriptors before, {after} after");
    assert_eq!(children("leak-probe"), 0);
}

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

/// The number of children of this process with this name, including zombies.
fn children(name: &str) -> usize {
    let processes =
        fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let ours =
        processes.filter(|pid: &u32| state(*pid).is_some_and(|(_, parent)| parent == std::process::id()));
    ours.filter(|pid| fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim() == name))
        .count()
}
