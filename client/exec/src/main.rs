//! `credbroker-exec`: see the library.

use std::{
    env::{args_os, current_exe},
    os::unix::process::CommandExt as _,
    process::Command,
};

use credbroker_exec::{Edges, run};
use signal_hook::low_level::exit;

/// Exits without cleaning up: everything is written, and the kernel frees the rest.
fn main() {
    let mut args = args_os().skip(1).peekable();
    if args.next_if(|first| first == "bridge").is_some() {
        exit(bridge(args).into());
    }
    let mut edges = Edges::of_this_process();
    exit(run(args, &mut edges).into())
}

/// Becomes `credbroker bridge`, which would make this program larger for each of its other uses. Returns only if it cannot.
fn bridge(args: impl Iterator<Item = std::ffi::OsString>) -> u8 {
    let beside = current_exe().ok().map(|own| own.with_file_name("credbroker")).filter(|path| path.exists());
    let program = beside.unwrap_or_else(|| "credbroker".into());
    #[expect(clippy::disallowed_methods, reason = "the process becomes the bridge")]
    let error = Command::new(&program).arg("bridge").args(args).exec();
    eprintln!(
        "credbroker-exec: cannot run {}: {error}; the bridge is a command of the program credbroker: put it in the same directory as credbroker-exec, or in PATH",
        program.display()
    );
    if error.kind() == std::io::ErrorKind::NotFound { 127 } else { 126 }
}
