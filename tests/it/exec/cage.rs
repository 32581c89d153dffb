//! What a plugin inherits, and what becomes of the processes that it starts.

use std::collections::BTreeMap;

use rustix::{
    io::{FdFlags, fcntl_setfd},
    process::{Pid, Signal, kill_process},
};

use super::*;

/// A daemon as programs make them: two forks and a separate session. It writes its id to `$STATE/daemon`.
const DAEMON: &str =
    "(setsid sh -c 'sh -c \"echo \\$\\$ > $STATE/daemon.new; mv $STATE/daemon.new $STATE/daemon; \
     exec sleep 300\" &' >/dev/null 2>&1 </dev/null &)
    while [ ! -s $STATE/daemon ]; do sleep 0.01; done";

fn daemon(then: &str) -> Plugin {
    Plugin::script(&format!("{DAEMON}\n{then}"))
}

/// A line of `/proc/self/status` for each of these names, as the plugin has it.
async fn status_of(sandbox: Sandbox, names: &[&str]) -> BTreeMap<String, String> {
    let mut plugin = Plugin::script("exec cat /proc/self/status");
    plugin.provider.sandbox = sandbox;
    let (stdout, _) = plugin.run().await;
    let stdout = stdout.unwrap();
    let lines = stdout.lines().filter_map(|line| line.split_once(":\t"));
    let lines = lines.filter(|(name, _)| names.contains(name));
    lines.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

#[tokio::test]
async fn a_plugin_gets_three_descriptors_and_no_signal_is_ignored_or_blocked() {
    let (kept, _writer) = std::io::pipe().unwrap();
    fcntl_setfd(&kept, FdFlags::empty()).unwrap();
    let (stdout, _) = Plugin::script("exec ls /proc/self/fd").run().await;
    // 3 is the directory that ls reads.
    assert_eq!(stdout.unwrap().lines().collect::<Vec<_>>(), ["0", "1", "2", "3"]);
    let signals = status_of(Sandbox::Strict, &["SigBlk", "SigIgn"]).await;
    let mask = |name: &str| u64::from_str_radix(&signals[name], 16).unwrap();
    // The C library keeps signals 32 and 33 for itself.
    assert_eq!((mask("SigBlk"), mask("SigIgn") & !(3 << 31)), (0, 0));
}

#[tokio::test]
async fn a_run_has_its_own_session_without_a_terminal_and_a_private_umask() {
    let script = "read -r _ _ _ parent group session terminal _ < /proc/self/stat
        [ $group = $$ ] && [ $session = $parent ] && [ $terminal = 0 ] && echo separate; umask";
    let (stdout, _) = Plugin::script(script).run().await;
    assert_eq!(stdout.unwrap(), "separate\n0077\n");
}

#[tokio::test]
async fn the_kernel_ends_a_plugin_before_the_broker_when_memory_runs_out() {
    let (stdout, _) = Plugin::script("exec cat /proc/self/oom_score_adj").run().await;
    assert_eq!(stdout.unwrap(), "1000\n");
    let own = fs::read_to_string("/proc/self/oom_score_adj").unwrap();
    assert_ne!(own, "1000\n");
}

#[tokio::test]
async fn limits_are_hard_in_the_strict_sandbox_and_soft_in_the_other() {
    let script = "for limit in c n f t; do echo $(ulimit -S$limit) $(ulimit -H$limit); done; ulimit -v";
    for sandbox in [Sandbox::Strict, Sandbox::Compatible] {
        let mut plugin = Plugin::script(&format!("exec /bin/bash -c '{script}'"));
        plugin.provider.sandbox = sandbox;
        plugin.provider.timeout = Duration::from_secs(300);
        let (stdout, _) = plugin.run().await;
        let stdout = stdout.unwrap();
        let lines: Vec<_> = stdout.lines().collect();
        let hard = if sandbox == Sandbox::Strict { ["1024", "65536", "305"] } else { ["", "", ""] };
        for (line, (soft, hard)) in lines[1..4].iter().zip(["1024", "65536", "300"].into_iter().zip(hard)) {
            let (is_soft, is_hard) = line.split_once(' ').unwrap();
            assert_eq!(is_soft, soft, "{sandbox:?}");
            assert!(hard.is_empty() || is_hard == hard, "{sandbox:?}: {line}");
        }
        assert_eq!((lines[0], lines[4]), ("0 0", "unlimited"), "{sandbox:?}");
    }
}

#[tokio::test]
async fn only_the_strict_sandbox_forbids_new_privileges() {
    for (sandbox, expected) in [(Sandbox::Strict, "1"), (Sandbox::Compatible, "0")] {
        assert_eq!(status_of(sandbox, &["NoNewPrivs"]).await["NoNewPrivs"], expected);
    }
}

#[tokio::test]
async fn a_daemon_ends_with_a_run_that_fails_or_takes_too_long() {
    for (sandbox, then) in [
        (Sandbox::Strict, "exit 1"),
        (Sandbox::Compatible, "exit 1"),
        (Sandbox::Compatible, "kill -KILL $$"),
        (Sandbox::Compatible, "head -c 2000000 /dev/zero; sleep 300"),
    ] {
        let mut plugin = daemon(then);
        plugin.provider.sandbox = sandbox;
        let (result, started) = plugin.run().await;
        assert!(result.is_err(), "{then}: {result:?}");
        started.is_gone("daemon").await;
    }
    let mut plugin = daemon(&format!("cp $STATE/daemon $STATE/caller; {UNTIL_REFUSED}; echo token"));
    plugin.provider.sandbox = Sandbox::Compatible;
    let (result, started) = plugin.run_and_refuse().await;
    assert!(matches!(result, Err(RunError { kind: RunErrorKind::Recursion, .. })), "{result:?}");
    started.is_gone("daemon").await;
    let mut plugin = daemon("trap '' TERM; while :; do sleep 1; done");
    (plugin.provider.timeout, plugin.limits.terminate_grace) = (ms(3000), ms(10));
    let (result, started) = plugin.run().await;
    assert!(matches!(result, Err(RunError { kind: RunErrorKind::Timeout(..), .. })), "{result:?}");
    started.is_gone("daemon").await;
}

/// It looks like a zombie, has its own session, and goes on.
#[tokio::test]
async fn a_daemon_whose_first_thread_has_ended_ends_with_the_run() {
    let Some(python) = ["/usr/bin/python3", "/bin/python3"].into_iter().find(|path| Path::new(path).exists())
    else {
        println!("SKIPPED: the daemon is a Python program");
        return;
    };
    let program = "import ctypes, threading, time; threading.Thread(target=time.sleep, args=(300,)).start(); \
                   ctypes.CDLL(None).pthread_exit(None)";
    let script = format!(
        "setsid sh -c 'echo $$ > $STATE/daemon.new; mv $STATE/daemon.new $STATE/daemon; exec {python} -I -c \"{program}\"' >/dev/null 2>&1 &
        until [ -s $STATE/daemon ] && grep -q ' Z ' /proc/$(cat $STATE/daemon)/stat; do sleep 0.01; done
        ls /proc/$(cat $STATE/daemon)/task | wc -l >&2; exit 1"
    );
    let (result, started) = Plugin::script(&script).run().await;
    assert!(
        matches!(&result, Err(RunError { kind: RunErrorKind::Exit(_), stderr, .. }) if &**stderr == "2"),
        "two threads: {result:?}"
    );
    let pid = started.pid("daemon").await;
    eventually("the end of its threads", || state(pid).is_none().then_some(())).await;
}

#[tokio::test]
async fn a_daemon_ends_with_a_run_that_is_cancelled() {
    let (started, spec) = daemon("sleep 300").spec();
    tokio::select! {
        result = started.runner.stdout(&spec, Arc::default()) => panic!("{result:?}"),
        _ = started.pid("daemon") => {}
    }
    started.leaves_nothing().await;
    started.is_gone("daemon").await;
}

#[tokio::test]
async fn a_daemon_of_a_successful_run_lives_on_in_the_compatible_sandbox_only() {
    let (result, started) = daemon("echo token").run().await;
    assert_eq!(result.unwrap(), "token\n");
    started.is_gone("daemon").await;

    let mut plugin = daemon("echo token");
    plugin.provider.sandbox = Sandbox::Compatible;
    let (result, started) = plugin.run().await;
    assert_eq!(result.unwrap(), "token\n");
    let id = started.pid("daemon").await;
    assert!(is_alive(id));
    let limits = fs::read_to_string(format!("/proc/{id}/limits")).unwrap();
    let own = fs::read_to_string("/proc/self/limits").unwrap();
    let of =
        |limits: &str, name: &str| limits.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
    for name in ["Max open files", "Max file size", "Max cpu time"] {
        assert_eq!(of(&limits, name), of(&own, name), "a browser needs more than a plugin");
    }
    let daemon = Pid::from_raw(id.try_into().unwrap()).unwrap();
    kill_process(daemon, Signal::KILL).unwrap();
}

#[tokio::test]
async fn a_plugin_that_kills_or_stops_its_launcher_leaves_nothing() {
    for signal in ["KILL", "STOP"] {
        let script = format!("sleep 300 & echo $! > $STATE/child; kill -{signal} $PPID; sleep 300");
        let mut plugin = Plugin::script(&script);
        (plugin.provider.timeout, plugin.limits.terminate_grace) = (ms(3000), ms(10));
        let (result, started) = plugin.run().await;
        assert!(result.is_err(), "{result:?}");
        started.is_gone("child").await;
    }
}

#[tokio::test]
async fn every_process_of_a_run_belongs_to_it_until_it_ends() {
    let (started, spec) = daemon("sleep 300").spec();
    let belongs = async {
        let daemon = started.pid("daemon").await;
        assert!(started.live.find(daemon).is_some());
        assert!(started.live.find(std::process::id()).is_none() && started.live.find(1).is_none());
        let mut at = daemon;
        while at != std::process::id() {
            (_, at) = state(at).expect("an ancestor");
        }
        daemon
    };
    let daemon = tokio::select! {
        result = started.runner.stdout(&spec, Arc::default()) => panic!("{result:?}"),
        daemon = belongs => daemon,
    };
    started.leaves_nothing().await;
    assert!(started.live.find(daemon).is_none());
}
