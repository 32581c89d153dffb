//! Runs other programs for `doctor`, `setup` and `stop`: systemctl, timedatectl, and the shim for its version.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::Context as _;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _},
    process::Command,
};

use credbroker_plugin::{Command as PluginCommand, Environment};
use credbroker_runner::find_in_path;

const LIMIT: Duration = Duration::from_secs(10);
/// How long systemctl may take: to stop a broker, it waits until the broker has drained.
const SYSTEMCTL: Duration = Duration::from_secs(30);
const MOST: u64 = 1 << 20;

#[derive(Debug)]
pub(super) struct Ran {
    pub(super) succeeded: bool,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

pub(super) fn of_plugin(command: &PluginCommand, environment: &Environment) -> Option<PathBuf> {
    match command {
        PluginCommand::Name(name) => find_in_path(name, environment.get("PATH").unwrap_or_default()),
        PluginCommand::Path(path) => Some(path.clone()).filter(|path| path.is_file()),
    }
}

/// The shim that `PATH` leads to, else the one at `beside`; and whether it is a program that runs the shim as its subcommand.
pub(super) fn shim(beside: &Path, environment: &Environment) -> (PathBuf, bool) {
    const NAME: &str = "credbroker-exec";
    let found = find_in_path(NAME, environment.get("PATH").unwrap_or_default());
    let path = found.unwrap_or_else(|| beside.to_owned());
    let is_subcommand = path.file_name().is_none_or(|name| name != NAME);
    (path, is_subcommand)
}

pub(super) fn systemctl(args: &[&str], environment: &Environment) -> Option<Ran> {
    let all: Vec<_> = ["--user"].iter().chain(args).copied().collect();
    run_within(SYSTEMCTL, "systemctl", &all, environment)
}

/// As [`systemctl`], which must succeed.
pub(super) fn manage(args: &[&str], environment: &Environment) -> anyhow::Result<()> {
    let shown = args.join(" ");
    let ran = systemctl(args, environment);
    let ran = ran
        .with_context(|| format!("`systemctl --user {shown}` did not run or did not end; run it yourself"))?;
    anyhow::ensure!(ran.succeeded, "`systemctl --user {shown}` failed: {}", ran.stderr.trim());
    Ok(())
}

/// Runs `program`, a path or a name in `PATH`, with the variables of `environment`. `None`: it is not there, cannot be
/// started, or does not end in time, with all processes that have its output.
pub(super) fn run(program: &str, args: &[&str], environment: &Environment) -> Option<Ran> {
    run_within(LIMIT, program, args, environment)
}

fn run_within(limit: Duration, program: &str, args: &[&str], environment: &Environment) -> Option<Ran> {
    let path = if program.contains('/') {
        Path::new(program).to_owned()
    } else {
        find_in_path(program, environment.get("PATH").unwrap_or_default())?
    };
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place of `doctor` and `setup` that starts programs"
    )]
    let mut command = Command::new(path);
    command.args(args).env_clear().envs(&environment.0).kill_on_drop(true);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
    runtime.block_on(async { tokio::time::timeout(limit, ended(command)).await.ok()? })
}

async fn ended(mut command: Command) -> Option<Ran> {
    let mut child = command.spawn().ok()?;
    let (stdout, stderr) = (text(child.stdout.take()?), text(child.stderr.take()?));
    let (status, stdout, stderr) = tokio::join!(child.wait(), stdout, stderr);
    Some(Ran { succeeded: status.ok()?.success(), stdout, stderr })
}

async fn text(pipe: impl AsyncRead + Unpin) -> String {
    let mut bytes = Vec::new();
    drop(pipe.take(MOST).read_to_end(&mut bytes).await);
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use credbroker_test_support::FakePlugin;

    use super::*;

    #[test]
    fn the_output_and_the_end_of_a_program_are_returned() {
        let program = FakePlugin::script("echo out \"$1\"; echo err >&2; exit 3");
        let path = program.path();
        let environment: Environment = [("PATH", "/usr/bin:/bin")].into_iter().collect();
        let ran = run(path.to_str().unwrap(), &["x"], &environment).unwrap();
        assert_eq!((ran.succeeded, ran.stdout.as_str(), ran.stderr.as_str()), (false, "out x\n", "err\n"));
        assert!(run("credbroker-absent", &[], &environment).is_none());
        assert!(run("sh", &["-c", "true"], &environment).unwrap().succeeded);
    }

    #[test]
    fn a_program_that_closes_its_output_or_leaves_it_to_another_is_not_waited_for_without_end() {
        let environment: Environment = [("PATH", "/usr/bin:/bin")].into_iter().collect();
        for script in ["exec sleep 30 >&- 2>&-", "sleep 2 >&- & exit"] {
            let ran = run_within(Duration::from_millis(200), "sh", &["-c", script], &environment);
            assert!(ran.is_none(), "{script}: {ran:?}");
        }
    }
}
