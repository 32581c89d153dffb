//! Everything that the shim takes from its process and gives back to it.

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    fmt,
    io::{self, IsTerminal, Write},
    time::SystemTime,
};

use rustix::{
    fs::{Mode, OFlags, open},
    process::geteuid,
};

/// Variables by name.
pub type Environment = BTreeMap<OsString, OsString>;

/// The process around [`run`](crate::run). Standard input is not part of it: that belongs to the caller's caller.
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
    pub is_root: bool,
}

impl Edges {
    /// Those of this process.
    pub fn of_this_process() -> Self {
        #[expect(clippy::disallowed_methods, reason = "the one reader of the shim's environment")]
        let environment = std::env::vars_os().collect();
        #[expect(clippy::disallowed_methods, reason = "the one reader of the shim's clock")]
        let clock = SystemTime::now;
        Self {
            environment,
            clock,
            stdout: Box::new(io::stdout()),
            stderr: Box::new(io::stderr()),
            terminal: io::stderr().is_terminal(),
            is_root: geteuid().is_root(),
        }
    }

    /// One line, in one write when it fits a pipe. A reader that is gone is an error like any other: Rust ignores
    /// SIGPIPE.
    pub(crate) fn print(&mut self, line: &str) -> io::Result<()> {
        self.stdout.write_all(line.as_bytes())?;
        self.stdout.flush()
    }

    /// Whoever closed stderr does not want to know.
    pub(crate) fn complain(&mut self, text: &str) {
        drop(self.stderr.write_all(text.as_bytes()).and_then(|()| self.stderr.flush()));
    }

    /// Tells the broker, through the file it named, that its plugin came back to us. A file that is there is left as it
    /// is, whatever it is.
    pub(crate) fn mark(path: &OsStr) {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        drop(open(path, flags, Mode::RUSR | Mode::WUSR));
    }

    pub(crate) fn variable(&self, name: &str) -> Option<&OsString> {
        self.environment.get(OsStr::new(name))
    }
}

/// Names of variables, never their values.
impl fmt::Debug for Edges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Edges")
            .field("environment", &self.environment.keys())
            .field("terminal", &self.terminal)
            .field("is_root", &self.is_root)
            .finish_non_exhaustive()
    }
}
