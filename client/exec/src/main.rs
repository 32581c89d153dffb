//! `credbroker-exec`: see the library.

use std::{env::args_os, process::ExitCode};

use credbroker_exec::{Edges, run};

fn main() -> ExitCode {
    run(args_os().skip(1), Edges::of_this_process()).into()
}
