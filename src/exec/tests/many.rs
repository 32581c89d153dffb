//! Many runs: caps and leaks.

use tokio::task::JoinSet;

use super::*;

#[tokio::test]
async fn runs_of_a_provider_are_capped_and_all_get_their_turn() {
    // Every run writes down how many are going on at its middle.
    let script = "echo x > $STATE/running/$$; ls $STATE/running | wc -l >> $STATE/counts; sleep 0.05; rm $STATE/running/$$; echo token";
    let mut plugin = Plugin::script(script);
    plugin.limits.runs_per_provider = 2;
    fs::create_dir(plugin.home.path().join("running")).unwrap();
    let (started, spec) = plugin.spec();
    let started = Arc::new(started);
    let mut runs = JoinSet::new();
    for _ in 0..10 {
        let (started, spec) = (Arc::clone(&started), Arc::clone(&spec));
        runs.spawn(async move { started.runner.stdout(&spec).await.map(|(stdout, _)| stdout.len()) });
    }
    assert!(runs.join_all().await.into_iter().all(|length| length.unwrap() == 6));
    let counts = fs::read_to_string(started.file("counts")).unwrap();
    let counts: Vec<u32> = counts.lines().map(|line| line.trim().parse().unwrap()).collect();
    assert_eq!((counts.len(), counts.iter().max()), (10, Some(&2)), "{counts:?}");
}

#[tokio::test]
async fn who_waits_for_a_slot_too_long_is_told_so() {
    let mut slow = Plugin::script("echo $$ > $STATE/pid; exec sleep 300");
    slow.limits.runs = 1;
    let mut impatient = Plugin::script("echo token");
    impatient.provider.name = "another".into();
    impatient.provider.timeout = ms(50);
    let ((started, slow), (_home, impatient)) = (slow.spec(), impatient.spec());
    let refused = async {
        started.pid("pid").await;
        started.runner.stdout(&impatient).await
    };
    tokio::select! {
        result = started.runner.stdout(&slow) => panic!("{result:?}"),
        result = refused => {
            assert!(matches!(result, Err(RunError::Overloaded { waited, .. }) if waited == ms(50)), "{result:?}");
        }
    }
    let (free, _) = started.runner.stdout(&impatient).await.unwrap();
    assert_eq!(*free, b"token\n");
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
