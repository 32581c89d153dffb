//! The daemon and admin CLI.

fn main() {}
