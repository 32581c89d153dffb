//! All access of the shim to its process: environment, clock, output, parent.

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    fmt,
    fs::File,
    io::{self, IsTerminal, Read as _, Write},
    mem::forget,
    time::SystemTime,
};

use rustix::{
    buffer::spare_capacity,
    fs::{Mode, OFlags, open},
    io::{read, write},
    process::{geteuid, getppid},
    stdio::stdout,
};

use crate::caller::{Parent, is_shell, runs_one_command, started_by};

/// Most bytes of the variables of a process that are read: more than the kernel lets a process be started with.
const MOST_VARIABLES: u64 = 8 << 20;

/// Variables with their names. Most of them are of no interest to the shim, so they are searched and not sorted.
#[derive(Clone, Default)]
pub struct Environment(Vec<(OsString, OsString)>);

impl Environment {
    /// The value of `name`, the last one if there are several.
    pub fn get(&self, name: &str) -> Option<&OsStr> {
        self.of(OsStr::new(name))
    }

    /// As [`get`](Self::get), for any name.
    pub(crate) fn of(&self, name: &OsStr) -> Option<&OsStr> {
        self.iter().rev().find(|(set, _)| *set == name).map(|(_, value)| value)
    }

    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = (&OsStr, &OsStr)> {
        self.0.iter().map(|(name, value)| (name.as_os_str(), value.as_os_str()))
    }
}

impl FromIterator<(OsString, OsString)> for Environment {
    fn from_iter<I: IntoIterator<Item = (OsString, OsString)>>(variables: I) -> Self {
        Self(variables.into_iter().collect())
    }
}

impl From<&BTreeMap<OsString, OsString>> for Environment {
    fn from(variables: &BTreeMap<OsString, OsString>) -> Self {
        variables.iter().map(|(name, value)| (name.clone(), value.clone())).collect()
    }
}

/// Names of variables, never their values.
impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter().map(|(name, _)| name)).finish()
    }
}

/// The process around [`run`](crate::run). The shim does not read standard input, which belongs to the client. Values that
/// need a system call and are seldom used are functions.
pub struct Edges {
    /// All environment variables.
    pub environment: Environment,
    /// The wall clock, read once, after the answer.
    pub clock: fn() -> SystemTime,
    /// Gets exactly one line, and only on success.
    pub stdout: Box<dyn Write>,
    /// Gets exactly one line on failure, and on a terminal what the shim waits for.
    pub stderr: Box<dyn Write>,
    /// A user reads `stderr`.
    pub terminal: bool,
    /// The effective user is root.
    pub is_root: fn() -> bool,
    /// The process that started this one, or with `true` the one behind a shell that runs one command. `None`: `/proc` does
    /// not show it.
    pub parent: fn(bool) -> Option<Parent>,
    /// The variables that the process that started this one was started with, each followed by a NUL. `None`: `/proc` does
    /// not show them.
    pub parent_environment: fn() -> Option<Vec<u8>>,
}

impl Edges {
    /// The edges of this process.
    pub fn of_this_process() -> Self {
        #[expect(clippy::disallowed_methods, reason = "the one reader of the shim's environment")]
        let environment = std::env::vars_os().collect::<Environment>();
        // Without TERM there is no terminal, and no system call is needed.
        let terminal = environment.get("TERM").is_some() && io::stderr().is_terminal();
        #[expect(clippy::disallowed_methods, reason = "the one reader of the shim's clock")]
        let clock = SystemTime::now;
        Self {
            environment,
            clock,
            stdout: Box::new(StandardOutput),
            stderr: Box::new(io::stderr()),
            terminal,
            is_root: || geteuid().is_root(),
            parent,
            parent_environment,
        }
    }

    /// Writes the text, in one write if it fits into a pipe. A reader that is gone is an error: Rust ignores SIGPIPE.
    pub(crate) fn print(&mut self, line: &str) -> io::Result<()> {
        self.stdout.write_all(line.as_bytes())?;
        self.stdout.flush()
    }

    /// Writes to stderr. Errors are ignored: there is no other place for the text.
    pub(crate) fn complain(&mut self, text: &str) {
        drop(self.stderr.write_all(text.as_bytes()).and_then(|()| self.stderr.flush()));
    }

    pub(crate) fn variable(&self, name: &str) -> Option<&OsStr> {
        self.environment.get(name)
    }
}

/// Standard output without std's buffer: there is only one write.
struct StandardOutput;

impl Write for StandardOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(write(stdout(), bytes)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn parent(behind_shell: bool) -> Option<Parent> {
    let mut pid = getppid()?.as_raw_nonzero().get();
    let mut stat = of_process(pid, "stat")?;
    if behind_shell && is_shell(&stat) && runs_one_command(&of_process(pid, "cmdline")?) {
        pid = started_by(&stat)?;
        stat = of_process(pid, "stat")?;
    }
    Parent::from_stat(pid, &stat)
}

fn parent_environment() -> Option<Vec<u8>> {
    let mut content = Vec::new();
    let file = File::open(format!("/proc/{}/environ", getppid()?.as_raw_nonzero())).ok()?;
    file.take(MOST_VARIABLES).read_to_end(&mut content).ok()?;
    (content.len() as u64 != MOST_VARIABLES).then_some(content)
}

/// Reads `/proc/PID/NAME` once, up to a kilobyte: the line of `stat` has about 300 bytes.
fn of_process(pid: i32, name: &str) -> Option<Vec<u8>> {
    let file = open(format!("/proc/{pid}/{name}"), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut content = Vec::with_capacity(1024);
    read(&file, spare_capacity(&mut content)).ok()?;
    forget(file); // closed with the process, which ends soon
    Some(content)
}

impl fmt::Debug for Edges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Edges").field("environment", &self.environment).finish_non_exhaustive()
    }
}
