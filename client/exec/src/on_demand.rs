//! Starts a user's broker where there is no systemd, and only where `credbroker setup` left its mark. It is looked at
//! only after connecting has failed.

use std::{
    collections::BTreeMap,
    fs::{File, Metadata, OpenOptions},
    io::{self, Read as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use credbroker_client::{
    Socket,
    safety::{Unsafe, unsafe_file, unsafe_way},
};
use rustix::{
    fs::{FlockOperation, OFlags, flock},
    io::{Errno, FdFlags, fcntl_setfd, ioctl_fionbio},
    net::{AddressFamily, SocketAddrUnix, SocketType, connect, socket},
    process::geteuid,
};
use serde::{Deserialize, Serialize};

use crate::{edges::Environment, request::is_named};

/// Largest mark, in bytes.
const MOST: u64 = 64 * 1024;
/// A log of this size is started again, in bytes.
const LOG: u64 = 1 << 20;

/// What `credbroker setup` records.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OnDemand {
    /// The broker's program, an absolute path.
    pub program: PathBuf,
    /// The file that the broker logs to.
    pub log: PathBuf,
    /// All variables that the broker gets.
    pub environment: BTreeMap<String, String>,
}

impl OnDemand {
    /// Where the mark of a user with these directories is: `$XDG_CONFIG_HOME`, else `~/.config`.
    pub fn path(config_home: Option<&Path>, home: Option<&Path>) -> Option<PathBuf> {
        let config = config_home.filter(|path| path.is_absolute()).map(Path::to_owned);
        Some(config.or_else(|| Some(home?.join(".config")))?.join("credbroker/start-on-demand.json"))
    }
}

/// Why the broker was not started although there is a mark.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{problem}")]
pub struct OnDemandError {
    problem: String,
}

/// Starts the broker of this user, if that is allowed.
#[derive(Clone, Debug)]
pub struct Starter {
    mark: PathBuf,
    runtime_directory: PathBuf,
}

impl Starter {
    /// `None`: a socket or a broker is named, by a flag (`is_flagged`) or a variable, or there is no runtime directory of the
    /// user. Makes no system call.
    pub fn of(is_flagged: bool, environment: &Environment) -> Option<Self> {
        let variable = |name| environment.get(name).filter(|value| !value.is_empty()).map(Path::new);
        let is_own = |path: &&Path| path.is_absolute() && !is_named(is_flagged, environment);
        let runtime_directory = variable("XDG_RUNTIME_DIR").filter(is_own)?;
        let mark = OnDemand::path(variable("XDG_CONFIG_HOME"), variable("HOME"))?;
        Some(Self { mark, runtime_directory: runtime_directory.to_owned() })
    }

    /// Whether the broker does not run, and [`start`](Self::start) would start it.
    pub fn may_start(&self) -> bool {
        matches!(self.stopped(), Ok(Some(_)))
    }

    /// Whether [`start`](Self::start) would start the broker if it did not run.
    ///
    /// # Errors
    ///
    /// The same errors as [`start`](Self::start).
    pub fn can_start(&self) -> Result<bool, OnDemandError> {
        self.usable()?.map_or(Ok(false), |(_, recorded)| is_safe(&recorded).map(|()| true))
    }

    /// Starts the broker, if there is a mark and this user is not root. Returns its socket without waiting, or `None` if it
    /// was not started.
    ///
    /// # Errors
    ///
    /// The mark, the program or the log is not there, or other users can change it.
    pub fn start(&self) -> Result<Option<Socket>, OnDemandError> {
        let Some((mark, recorded)) = self.stopped()? else { return Ok(None) };
        // Of many shims one starts the broker; the lock ends with its process.
        if flock(&mark, FlockOperation::NonBlockingLockExclusive).is_ok() {
            std::mem::forget(mark);
            is_safe(&recorded)?;
            spawn(&recorded).map_err(|error| problem(&recorded.program, &error.to_string()))?;
        }
        Ok(Some(self.own_socket()))
    }

    /// The socket of the broker that it starts.
    pub fn own_socket(&self) -> Socket {
        Socket::at(self.socket())
    }

    fn socket(&self) -> PathBuf {
        self.runtime_directory.join("credbroker/credbroker.sock")
    }

    /// The mark, and what it says, if the broker does not run.
    fn stopped(&self) -> Result<Option<(File, OnDemand)>, OnDemandError> {
        if is_absent(&self.socket()) { self.usable() } else { Ok(None) }
    }

    /// The mark, and what it says, if it is for this user and this runtime directory.
    fn usable(&self) -> Result<Option<(File, OnDemand)>, OnDemandError> {
        let user = geteuid();
        let is_own = |found: Metadata| found.uid() == user.as_raw();
        if user.is_root() || !self.runtime_directory.metadata().is_ok_and(is_own) {
            return Ok(None);
        }
        let is_for_this = |(_, recorded): &(File, OnDemand)| {
            recorded.environment.get("XDG_RUNTIME_DIR").map(Path::new) == Some(&*self.runtime_directory)
        };
        Ok(self.recorded()?.filter(is_for_this))
    }

    fn recorded(&self) -> Result<Option<(File, OnDemand)>, OnDemandError> {
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits();
        let opened = OpenOptions::new().read(true).custom_flags(flags.cast_signed()).open(&self.mark);
        let mut file = match opened {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(problem(&self.mark, &error.to_string())),
        };
        checked(&self.mark)?;
        let mut text = Vec::new();
        let read = file.by_ref().take(MOST).read_to_end(&mut text);
        let recorded = read.map_err(|error| error.to_string()).and_then(|_| {
            serde_json::from_slice(&text).or(Err("it is not a file of `credbroker setup`".to_owned()))
        });
        recorded.map(|recorded| Some((file, recorded))).map_err(|why| problem(&self.mark, &why))
    }
}

/// Fails if other users can change what is started.
fn is_safe(recorded: &OnDemand) -> Result<(), OnDemandError> {
    checked(&recorded.program)?;
    safe(&recorded.log, || unsafe_way(recorded.log.parent().unwrap_or(Path::new("/"))))
}

/// Whether no process listens there. Does not block: a listener whose queue is full is there.
fn is_absent(path: &Path) -> bool {
    let connected = SocketAddrUnix::new(path).and_then(|address| {
        let socket = socket(AddressFamily::UNIX, SocketType::STREAM, None)?;
        fcntl_setfd(&socket, FdFlags::CLOEXEC)?;
        ioctl_fionbio(&socket, true)?;
        connect(&socket, &address)
    });
    matches!(connected, Err(Errno::NOENT | Errno::CONNREFUSED))
}

/// Refuses a file that other users can change or replace.
fn checked(path: &Path) -> Result<(), OnDemandError> {
    if !path.is_absolute() || !path.is_file() {
        return Err(problem(path, "it is not there"));
    }
    safe(path, || Ok(unsafe_file(path, &path.metadata()?)?.into_iter().next()))
}

fn safe(path: &Path, check: impl FnOnce() -> io::Result<Option<Unsafe>>) -> Result<(), OnDemandError> {
    match check() {
        Ok(None) => Ok(()),
        Ok(Some(by)) => Err(problem(path, &by.problem("decide what is started"))),
        Err(error) => Err(problem(path, &error.to_string())),
    }
}

/// The process gets no descriptor of the caller but the log, and makes its own session.
fn spawn(recorded: &OnDemand) -> io::Result<()> {
    let flags = OFlags::NOFOLLOW.bits().cast_signed();
    let log =
        OpenOptions::new().append(true).create(true).mode(0o600).custom_flags(flags).open(&recorded.log)?;
    if log.metadata()?.size() > LOG {
        log.set_len(0)?;
    }
    close_fds::set_fds_cloexec(3, &[]);
    #[expect(clippy::disallowed_methods, reason = "the one process that the shim starts")]
    let mut command = Command::new(&recorded.program);
    command.args(["serve", "--detached"]).env_clear().envs(&recorded.environment).current_dir("/");
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn().map(drop)
}

fn problem(path: &Path, why: &str) -> OnDemandError {
    OnDemandError { problem: format!("{}: {why}", path.display()) }
}
