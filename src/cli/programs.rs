//! Runs other programs for `doctor` and `setup`: systemctl, timedatectl, and the shim for its version.

use std::{
    ffi::OsStr,
    io::Read as _,
    path::Path,
    process::{Command, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

use crate::plugin::{Environment, find_in_path};

/// How long a program may take.
const LIMIT: Duration = Duration::from_secs(10);
/// Most output that is read, in bytes.
const MOST: u64 = 1 << 20;

/// What a program printed on standard output.
#[derive(Debug)]
pub(super) struct Ran {
    pub(super) succeeded: bool,
    pub(super) stdout: String,
    /// Standard error, to quote.
    pub(super) stderr: String,
}

/// Runs `program`, a path or a name in `PATH`, with the variables of `environment`. `None`: it is not there, cannot be
/// started, or does not end within ten seconds.
pub(super) fn run(program: &str, args: &[&OsStr], environment: &Environment) -> Option<Ran> {
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
    command.args(args).env_clear().envs(&environment.0);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().ok()?;
    let (sender, receiver) = mpsc::channel();
    let (stdout, stderr) = (child.stdout.take()?, child.stderr.take()?);
    let errors = thread::spawn(move || text(stderr));
    thread::spawn(move || drop(sender.send(text(stdout))));
    let Ok(stdout) = receiver.recv_timeout(LIMIT) else {
        drop(child.kill());
        drop(child.wait());
        return None;
    };
    let status = child.wait().ok()?;
    Some(Ran { succeeded: status.success(), stdout, stderr: errors.join().unwrap_or_default() })
}

fn text(pipe: impl std::io::Read) -> String {
    let mut bytes = Vec::new();
    drop(pipe.take(MOST).read_to_end(&mut bytes));
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
        let ran = run(path.to_str().unwrap(), &["x".as_ref()], &environment).unwrap();
        assert_eq!((ran.succeeded, ran.stdout.as_str(), ran.stderr.as_str()), (false, "out x\n", "err\n"));
        assert!(run("credbroker-absent", &[], &environment).is_none());
        assert!(run("sh", &["-c".as_ref(), "true".as_ref()], &environment).unwrap().succeeded);
    }
}
