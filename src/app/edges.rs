//! The inputs from outside: clock, randomness, environment and signals. No other file reads them.

use std::{ffi::OsStr, io, path::PathBuf, sync::Arc};

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::{
    linux::PROGRAM, logs::LogQueue, proxy::ProxyOptions, reload::ConfigPlace, systemd::ServiceManager,
};
use credbroker_config::Sources;
use credbroker_observe::clock::{Clock, SystemClock};
use credbroker_plugin::Environment;

/// The inputs from outside, without the socket.
#[derive(Debug)]
pub struct Edges {
    /// Reads the time.
    pub clock: Arc<dyn Clock>,
    /// Uniform in [0, 1).
    pub jitter: fn() -> f64,
    /// Identifies this start of the broker.
    pub epoch: Arc<str>,
    /// The directory for the private working directories of plugins.
    pub scratch: PathBuf,
    /// Who gets notifications about the state of the broker.
    pub service_manager: Option<ServiceManager>,
    /// This program, which is started as the launcher of each plugin.
    pub launcher: PathBuf,
    /// Whether the broker adopts and reaps what plugins leave behind. Then it reaps every child of this process.
    pub reaps_orphans: bool,
    /// The log, without which the broker ends. `None`: the process has another one.
    pub log: Option<LogQueue>,
    /// The files of the configuration, which the broker follows, and those that it is built from. `None`: it follows none.
    pub follow: Option<(ConfigPlace, Sources)>,
    /// The proxy of the broker's process. `None`: it has none.
    pub proxy: Option<ProxyOptions>,
}

impl Edges {
    /// The real inputs.
    pub fn system(environment: &Environment) -> Self {
        let temporary = environment.get("TMPDIR").filter(|path| !path.is_empty());
        Self {
            clock: Arc::new(SystemClock),
            jitter: fastrand::f64,
            epoch: format!("{:08x}", fastrand::u32(..)).into(),
            scratch: temporary.unwrap_or(OsStr::new("/tmp")).into(),
            service_manager: ServiceManager::of(environment),
            // A broker and its launchers are always of one version.
            launcher: PROGRAM.into(),
            reaps_orphans: false,
            log: None,
            follow: None,
            proxy: None,
        }
    }
}

/// The environment of this process.
pub fn environment() -> Environment {
    #[expect(clippy::disallowed_methods, reason = "the one reader of the daemon's environment")]
    Environment(std::env::vars_os().collect())
}

/// Signals that ask a process to end or to read its files again. None of them ends it by itself.
#[derive(Debug)]
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    /// Catches the signals, which then no longer end the process. Must be called within a tokio runtime.
    ///
    /// # Errors
    ///
    /// The kernel refuses a handler.
    pub fn catch() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for the next signal, and returns its name. The end of the terminal sends SIGHUP too.
    pub async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.hangup.recv() => "SIGHUP",
        }
    }

    /// Waits for the next signal that asks a broker to stop, and returns its name. Calls `reload` for each SIGHUP.
    pub async fn stop(&mut self, mut reload: impl FnMut()) -> &'static str {
        loop {
            match self.next().await {
                "SIGHUP" => reload(),
                name => return name,
            }
        }
    }
}

/// Signals for a command that runs another program in its place. None of them ends the command by itself.
#[derive(Debug)]
pub struct RelayedSignals {
    terminate: Signal,
    hangup: Signal,
    /// A terminal sends these to the program too.
    of_terminal: [Signal; 2],
}

impl RelayedSignals {
    /// Catches the signals. A program that is started later does not inherit that. Must be called within a tokio runtime.
    ///
    /// # Errors
    ///
    /// The kernel refuses a handler.
    pub fn catch() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
            of_terminal: [signal(SignalKind::interrupt())?, signal(SignalKind::quit())?],
        })
    }

    /// Waits for the next signal that only this process gets.
    pub async fn next(&mut self) -> rustix::process::Signal {
        let [interrupt, quit] = &mut self.of_terminal;
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return rustix::process::Signal::TERM,
                _ = self.hangup.recv() => return rustix::process::Signal::HUP,
                _ = interrupt.recv() => {}
                _ = quit.recv() => {}
            }
        }
    }
}
