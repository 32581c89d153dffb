//! The real binary and a broker whose answers the test chooses.

#![expect(clippy::disallowed_methods, reason = "tests start the shim and read the clock")]
#![expect(clippy::indexing_slicing, clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![expect(clippy::print_stdout, reason = "a test that is skipped says so")]

mod broker;
mod failures;
mod fallback;
mod frugality;
mod handle;
mod lease;
mod on_demand;
mod requests;
mod sharing;
mod shim;
mod success;
mod sudo;
mod trust;
mod waiting;
