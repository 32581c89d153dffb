//! The broker as a whole: in this process over a real socket, and as the real binary.

#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::panic,
    reason = "tests may read clocks and start processes, and end by panics"
)]

mod access;
mod accounts;
mod admin;
mod answers;
mod authority;
mod binary;
mod commands;
mod consumers;
mod contexts;
mod deadlines;
mod doctor;
mod documents;
mod errors;
mod essential;
mod exec;
mod explain;
mod fleet;
mod harness;
mod hub_log;
mod in_place;
mod lasting;
mod limits;
mod logins;
mod many;
mod numbers;
mod operator;
mod outside;
mod pages;
mod panics;
mod protocol;
mod proxied;
mod proxy;
mod quickstart;
mod reference;
mod references;
mod reload;
mod rotation;
mod secrets;
mod seeds;
mod setup;
mod sharing;
mod shutdown;
mod stop;
mod switches;
