//! The daemon and admin CLI.

use std::process::ExitCode;

use clap::Parser as _;
use credbroker::{app, cli};

/// Wipes all freed memory: buffers of sockets and codecs contained secrets too.
#[global_allocator]
static ALLOCATOR: zeroizing_alloc::ZeroAlloc<std::alloc::System> =
    zeroizing_alloc::ZeroAlloc(std::alloc::System);

fn main() -> ExitCode {
    cli::run(cli::Cli::parse(), &app::environment(), &mut std::io::stdout())
}
