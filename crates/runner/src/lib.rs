//! Running plugins.

mod attendance;
mod directory;
mod error;
pub mod launch;
mod launcher;
mod lease;
mod live;
mod orphans;
mod output;
mod plugin_file;
mod process;
mod removal;
mod runner;
mod schedule;
mod supervise;
mod transcript;

use std::{future::Future, sync::Arc};

use credbroker_credential::Decoded;
use credbroker_plugin::PluginSpec;

pub use attendance::{Attendance, AttendanceNews, AttendanceReader, Attending, RunBudget};
pub use directory::check_scratch;
pub use error::RunError;
pub use lease::{Deposit, LeasedCommand, Lender, Offer};
pub use live::{CallingRun, LiveRuns};
pub use orphans::reap_orphans;
pub use plugin_file::{find_in_path, look_up_files};
pub use runner::{ProcessRunner, RunLimits, RunnerParts};
pub use schedule::{
    BROKER, Cause, ForeignTexts, PROBE_EVERY, RunPermit, RunSource, Scheduler, Throttled, Ticket,
    TicketHandle, Urgency, WaitsFor,
};

/// The output of a successful run.
#[derive(Debug)]
pub struct RunOutput {
    /// The credential.
    pub decoded: Decoded,
    /// The version of the plugin's file that ran, see [`PluginFile::version`](credbroker_plugin::PluginFile::version). When the
    /// file has another one, the credential is due.
    pub file_version: u64,
}

/// Runs a plugin once. The cache decides when. Tests replace it with one that starts no process.
pub trait PluginRunner: Send + Sync + 'static {
    /// Starts the plugin, waits for it, and decodes its output. `attendance` gets what it writes to stderr, decides how long
    /// it may take, and says whether a caller runs it in its terminal instead.
    ///
    /// Dropping the future ends the plugin and all processes below it.
    fn run(
        &self,
        spec: Arc<PluginSpec>,
        attendance: Arc<Attendance>,
    ) -> impl Future<Output = Result<RunOutput, RunError>> + Send;
}

impl<R: PluginRunner> PluginRunner for Arc<R> {
    fn run(
        &self,
        spec: Arc<PluginSpec>,
        attendance: Arc<Attendance>,
    ) -> impl Future<Output = Result<RunOutput, RunError>> + Send {
        R::run(self, spec, attendance)
    }
}
