//! `credbroker-exec`: see the library.

use std::env::args_os;

use credbroker_exec::{Edges, run};
use signal_hook::low_level::exit;

/// Exits without cleaning up: everything is written, and the kernel frees the rest.
fn main() {
    let mut edges = Edges::of_this_process();
    exit(run(args_os().skip(1), &mut edges).into())
}
