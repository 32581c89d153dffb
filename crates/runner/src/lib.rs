//! Running plugins: [`ProcessRunner`] starts each under a launcher (see [`launch`]), and the [`Scheduler`] decides when.

mod attendance;
mod directory;
mod error;
mod identity_files;
pub mod launch;
mod lease;
#[cfg(target_os = "linux")]
mod linux;
#[cfg(not(target_os = "linux"))]
#[path = "unsupported.rs"]
mod linux;
mod live;
mod output;
mod plugin_file;
mod process;
mod removal;
mod runner;
mod schedule;
mod stored;
mod transcript;

pub use attendance::{Attendance, AttendanceNews, AttendanceReader, Attending};
pub use directory::check_scratch;
pub use error::{RunError, RunErrorKind};
pub use identity_files::{judge, read_selector};
pub use lease::{Deposit, Lender, Offer, PluginCommand};
pub use live::{CallingRun, LiveRuns, reap_orphans};
pub use plugin_file::{find_in_path, look_up_files};
pub use process::{RunLimits, RunnerParts};
pub use runner::{PluginRunner, ProcessRunner, RunOutput};
pub use schedule::{
    BROKER, ForeignTexts, PROBE_EVERY, RunPermit, RunSource, Scheduler, Ticket, TicketHandle, Urgency,
};
pub use stored::StoredError;
