//! How runs end, and that they leave nothing behind.

use super::*;

#[tokio::test]
async fn a_timeout_ends_the_plugin_and_its_children() {
    let mut plugin =
        Plugin::script("echo $$ > $STATE/pid; sleep 300 & echo $! > $STATE/child; echo hm >&2; wait");
    plugin.provider.timeout = ms(300);
    let (result, started) = plugin.run().await;
    let Err(error @ RunError { kind: RunErrorKind::Timeout(..), .. }) = result else { panic!("{result:?}") };
    assert!(
        error
            .to_string()
            .ends_with("ran longer than 300ms (the provider's `timeout`) and was ended; its stderr ends: hm"),
        "{error}"
    );
    started.is_gone("pid").await;
    started.is_gone("child").await;
}

#[tokio::test]
async fn a_plugin_that_times_out_can_clean_up_on_sigterm() {
    let mut plugin =
        Plugin::script("trap 'echo done > $STATE/cleaned; exit 0' TERM; while :; do sleep 0.05; done");
    plugin.provider.timeout = ms(300);
    let (result, started) = plugin.run().await;
    assert!(matches!(result, Err(RunError { kind: RunErrorKind::Timeout(..), .. })), "{result:?}");
    assert_eq!(fs::read_to_string(started.file("cleaned")).unwrap(), "done\n");
}

#[tokio::test]
async fn a_plugin_that_ignores_sigterm_is_killed_after_the_grace_period() {
    let mut plugin = Plugin::script("trap '' TERM; echo $$ > $STATE/pid; while :; do echo x >&2; done");
    plugin.provider.timeout = ms(200);
    plugin.limits.terminate_grace = ms(200);
    let (result, started) = plugin.run().await;
    assert!(matches!(result, Err(RunError { kind: RunErrorKind::Timeout(..), .. })), "{result:?}");
    started.is_gone("pid").await;
}

#[tokio::test]
async fn output_beyond_the_limit_ends_the_run_at_once() {
    let mut plugin = Plugin::script("echo $$ > $STATE/pid; head -c 2000; head -c 2001 /dev/zero; sleep 300");
    plugin.limits.stdout = 2000;
    let (result, started) = plugin.run().await;
    assert!(matches!(result, Err(RunError { kind: RunErrorKind::OutputTooLarge(2000), .. })), "{result:?}");
    started.is_gone("pid").await;

    let mut plugin = Plugin::script("head -c 2001 /dev/zero");
    plugin.limits.stdout = 2000;
    let (result, _) = plugin.run().await;
    assert!(
        matches!(result, Err(RunError { kind: RunErrorKind::OutputTooLarge(_), .. })),
        "also when it has exited: {result:?}"
    );

    let mut plugin = Plugin::script("head -c 2000 /dev/zero");
    plugin.limits.stdout = 2000;
    assert_eq!(plugin.run().await.0.unwrap().len(), 2000);
}

#[tokio::test]
async fn a_grandchild_that_keeps_stdout_open_delays_the_result_for_the_grace_period_only() {
    let mut plugin = Plugin::script("sleep 300 & echo $! > $STATE/child; echo token");
    plugin.limits.stdout_grace = ms(100);
    let (result, started) = plugin.run().await;
    assert_eq!(result.unwrap(), "token\n");
    started.is_gone("child").await;
}

#[tokio::test]
async fn output_of_a_grandchild_within_the_grace_period_is_read() {
    let (result, _) = Plugin::script("(sleep 0.2; echo late) & echo early").run().await;
    assert_eq!(result.unwrap(), "early\nlate\n");
}

#[tokio::test]
async fn a_grandchild_that_keeps_only_stderr_open_delays_nothing() {
    let (result, started) =
        Plugin::script("sleep 300 >/dev/null & echo $! > $STATE/child; echo token").run().await;
    assert_eq!(result.unwrap(), "token\n");
    started.is_gone("child").await;
}

/// The kernel sends these signals to a background process that reads from or writes to its terminal.
#[tokio::test]
async fn a_plugin_that_the_terminal_stops_is_ended_at_once() {
    for signal in ["TTIN", "TTOU"] {
        let script = format!("echo $$ > $STATE/pid; echo 'Enter code:' >&2; kill -{signal} $$; echo token");
        let (result, started) = Plugin::script(&script).run().await; // its timeout is longer than that of the test
        assert!(
            matches!(&result, Err(RunError { kind: RunErrorKind::NeedsTerminal, stderr, .. }) if &**stderr == "Enter code:"),
            "{result:?}"
        );
        started.is_gone("pid").await;
    }
}

#[tokio::test]
async fn dropping_the_run_kills_the_group_and_leaves_nothing() {
    let plugin =
        Plugin::script("trap '' TERM; sleep 300 & echo $! > $STATE/child; echo $$ > $STATE/pid; wait");
    let (started, spec) = plugin.spec();
    let started_up = async { (started.pid("pid").await, started.pid("child").await) };
    let (pid, _) = tokio::select! {
        result = started.runner.stdout(&spec, Arc::default()) => panic!("{result:?}"),
        pids = started_up => pids,
    };
    started.is_gone("child").await;
    eventually("the reaping", || state(pid).is_none().then_some(())).await;
    started.leaves_nothing().await;
}
