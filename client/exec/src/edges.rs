//! Everything that the shim takes from its process and gives back to it.

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    fmt,
    io::{self, IsTerminal, Write},
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

use crate::caller::Parent;

/// Variables by name.
pub type Environment = BTreeMap<OsString, OsString>;

/// The process around [`run`](crate::run). Standard input is not part of it: that belongs to the caller's caller. What
/// takes a system call and is seldom needed is a function.
pub struct Edges {
    /// All variables.
    pub environment: Environment,
    /// The wall clock; read once, when the answer is there.
    pub clock: fn() -> SystemTime,
    /// Takes exactly one line, and only on success.
    pub stdout: Box<dyn Write>,
    /// Takes exactly one line on failure; on a terminal also what it is waiting for.
    pub stderr: Box<dyn Write>,
    /// A person reads `stderr`.
    pub terminal: bool,
    /// The effective user is root.
    pub is_root: fn() -> bool,
    /// The process that started this one; `None` where `/proc` does not say.
    pub parent: fn() -> Option<Parent>,
}

impl Edges {
    /// Those of this process.
    pub fn of_this_process() -> Self {
        #[expect(clippy::disallowed_methods, reason = "the one reader of the shim's environment")]
        let environment: Environment = std::env::vars_os().collect();
        // Only where there may be a terminal the system is asked.
        let terminal = environment.contains_key(OsStr::new("TERM")) && io::stderr().is_terminal();
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
        }
    }

    /// One line, in one write when it fits a pipe. A reader that is gone is an error like any other: Rust ignores
    /// SIGPIPE.
    pub(crate) fn print(&mut self, line: &str) -> io::Result<()> {
        self.stdout.write_all(line.as_bytes())?;
        self.stdout.flush()
    }

    /// If stderr is closed, there is no other place for the line.
    pub(crate) fn complain(&mut self, text: &str) {
        drop(self.stderr.write_all(text.as_bytes()).and_then(|()| self.stderr.flush()));
    }

    /// Reports to the broker, through the file that it named, that its plugin started the shim. An existing file is left
    /// unchanged.
    pub(crate) fn mark(path: &OsStr) {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        drop(open(path, flags, Mode::RUSR | Mode::WUSR));
    }

    pub(crate) fn variable(&self, name: &str) -> Option<&OsString> {
        self.environment.get(OsStr::new(name))
    }
}

/// Without std's buffer: there is one thing to write, as a whole.
struct StandardOutput;

impl Write for StandardOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(write(stdout(), bytes)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Of `/proc/PID/stat` one read gives enough: its line has some 300 bytes.
fn parent() -> Option<Parent> {
    let pid = getppid()?.as_raw_nonzero().get();
    let file = open(format!("/proc/{pid}/stat"), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut stat = Vec::with_capacity(1024);
    read(&file, spare_capacity(&mut stat)).ok()?;
    forget(file); // closed with the process, which ends soon
    Parent::from_stat(pid, &stat)
}

/// Names of variables, never their values.
impl fmt::Debug for Edges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Edges").field("environment", &self.environment.keys()).finish_non_exhaustive()
    }
}
