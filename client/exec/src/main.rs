//! `credbroker-exec`: see the library.

use std::env::args_os;

use credbroker_exec::{Edges, run};
use signal_hook::low_level::exit;

/// Ends at once: everything has been written, and to give back what the process has is the kernel's work.
fn main() {
    exit(run(args_os().skip(1), Edges::of_this_process()).into())
}
