//! Running plugins.

mod directory;
mod error;
mod output;
mod process;
mod runner;
mod schedule;
mod supervise;
#[cfg(test)]
mod tests;

use std::{future::Future, sync::Arc};

use crate::{credential::Decoded, plugin::PluginSpec};

pub use error::RunError;
pub use runner::{Limits, ProcessRunner};
pub use schedule::{Cause, Permit, Scheduler, Throttled, Ticket, TicketHandle, Urgency, WaitsFor};

/// What a run brought.
#[derive(Debug)]
pub struct RunOutput {
    /// The credential.
    pub decoded: Decoded,
    /// Which of the plugin's files ran: [`PluginFile::version`](crate::plugin::PluginFile::version) before the start.
    /// Once that is another, the credential is due.
    pub file_version: u64,
}

/// Runs one plugin once. The cache decides when; tests give it one that runs nothing.
pub trait PluginRunner: Send + Sync + 'static {
    /// Starts the plugin, waits for it, and reads what it printed.
    ///
    /// Dropping the future ends the plugin and everything it started.
    fn run(&self, spec: Arc<PluginSpec>) -> impl Future<Output = Result<RunOutput, RunError>> + Send;
}
