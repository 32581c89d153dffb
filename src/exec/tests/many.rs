//! Many runs: caps and leaks.

use tokio::task::JoinSet;
use tokio_util::task::TaskTracker;

use super::*;
use crate::{
    clock::SystemClock,
    exec::{Scheduler, Urgency},
};

#[tokio::test]
async fn runs_of_a_provider_are_capped_and_all_get_their_turn() {
    // Every run writes down how many are going on at its middle.
    let script = "echo x > $STATE/running/$$; ls $STATE/running | wc -l >> $STATE/counts; sleep 0.05; rm $STATE/running/$$; echo token";
    let mut plugin = Plugin::script(script);
    plugin.provider.issuer = Arc::new(Issuer::new("idp", NonZeroUsize::new(2).unwrap()));
    fs::create_dir(plugin.home.path().join("running")).unwrap();
    let (started, spec) = plugin.spec();
    let started = Arc::new(started);
    let scheduler = Scheduler::new(8, Arc::new(SystemClock), || 0.5, TaskTracker::new());
    let mut runs = JoinSet::new();
    for _ in 0..10 {
        let (started, spec) = (Arc::clone(&started), Arc::clone(&spec));
        let ticket = scheduler.enter(&spec.provider, Urgency::Background);
        runs.spawn(async move {
            let _permit = ticket.turn().await.unwrap();
            started.runner.stdout(&spec).await.map(|(stdout, _)| stdout.len())
        });
    }
    assert!(runs.join_all().await.into_iter().all(|length| length.unwrap() == 6));
    let counts = fs::read_to_string(started.file("counts")).unwrap();
    let counts: Vec<u32> = counts.lines().map(|line| line.trim().parse().unwrap()).collect();
    assert_eq!((counts.len(), counts.iter().max()), (10, Some(&2)), "{counts:?}");
}

/// Other tests run beside this one, so a few descriptors come and go; a thousand would be seen.
#[tokio::test]
async fn a_thousand_runs_leave_no_process_and_no_descriptor() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("leak-probe");
    std::os::unix::fs::symlink("/bin/true", &path).unwrap();
    let (started, spec) = Plugin::program(home, path).spec();
    let before = descriptors();
    for _ in 0..1000 {
        started.runner.stdout(&spec).await.unwrap();
    }
    let after = descriptors();
    assert!(after < before + 200, "{before} descriptors before, {after} after");
    assert_eq!(children("leak-probe"), 0);
}

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Children of this process by name, the dead ones too.
fn children(name: &str) -> usize {
    let processes =
        fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let ours =
        processes.filter(|pid: &u32| state(*pid).is_some_and(|(_, parent)| parent == std::process::id()));
    ours.filter(|pid| fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim() == name))
        .count()
}
