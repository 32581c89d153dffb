//! SIGTERM, SIGINT and SIGHUP.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals of a broker, none of which ends the process by itself.
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

    /// Waits for the next signal that asks to stop, and returns its name. Calls `reload` for each SIGHUP, which the end of
    /// the terminal sends too.
    pub async fn stop(&mut self, mut reload: impl FnMut()) -> &'static str {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return "SIGTERM",
                _ = self.interrupt.recv() => return "SIGINT",
                _ = self.hangup.recv() => reload(),
            }
        }
    }
}
