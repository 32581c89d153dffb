//! `credbroker-exec`: see the library.

use std::{
    env::{args_os, current_exe},
    ffi::OsString,
    io::{ErrorKind, Write as _},
    os::unix::process::CommandExt as _,
    process::Command,
};

use credbroker_exec::{Edges, run};
use signal_hook::low_level::exit;

/// Exits without cleaning up: everything is written, and the kernel frees the rest.
fn main() {
    let mut args = args_os().skip(1).peekable();
    let mut edges = Edges::of_this_process();
    let code = match args.next_if(|first| first == "bridge") {
        Some(_) => bridge(args, &mut edges),
        None => run(args, &mut edges),
    };
    exit(code.into())
}

/// Becomes `credbroker bridge`, which would make this program larger for each of its other uses. Returns only if it cannot.
fn bridge(args: impl Iterator<Item = OsString>, edges: &mut Edges) -> u8 {
    let beside = current_exe().ok().map(|own| own.with_file_name("credbroker")).filter(|path| path.exists());
    let program = beside.unwrap_or_else(|| "credbroker".into());
    #[expect(clippy::disallowed_methods, reason = "the process becomes the bridge")]
    let error = Command::new(&program).arg("bridge").args(args).exec();
    let line = format!(
        "credbroker-exec: cannot run {}: {error}; the bridge is a command of the program credbroker: put it in the \
         same directory as credbroker-exec, or in PATH\n",
        program.display()
    );
    // There is no other place for the text.
    drop(edges.stderr.write_all(line.as_bytes()));
    if error.kind() == ErrorKind::NotFound { 127 } else { 126 }
}
