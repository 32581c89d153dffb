//! The daemon and admin CLI.

use std::process::ExitCode;

use credbroker::{app, cli};
use credbroker_runner::launch;

#[cfg(target_env = "musl")]
use mimalloc::MiMalloc as Below;
#[cfg(not(target_env = "musl"))]
use std::alloc::System as Below;

/// Wipes all freed memory: buffers of sockets and codecs contained secrets too.
#[global_allocator]
static ALLOCATOR: zeroizing_alloc::ZeroAlloc<Below> = zeroizing_alloc::ZeroAlloc(Below);

fn main() -> ExitCode {
    // Before anything else is set up: each plugin run waits for its launcher.
    if let Some(code) = launch::requested(std::env::args_os()) {
        return code;
    }
    if let Some(code) = cli::complete(std::env::args_os()) {
        return code;
    }
    cli::run(cli::Cli::of_this_process(), &app::environment(), &mut std::io::stdout())
}
