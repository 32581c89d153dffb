//! The commands of a user, as the real binary.

#[expect(dead_code, reason = "`main` is for cargo")]
#[path = "../../../build.rs"]
mod build;
mod clusters;
mod contexts;
mod demo;
mod explain;
mod names;
mod requests;
mod shells;
mod status;
mod version;

use std::process::{Command, Output};

use credbroker_test_support::Broker;
use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_credbroker");

fn broker(providers: &Value) -> Broker {
    Broker::builder(PROGRAM).providers(providers).start()
}

/// Runs a command for `broker`.
fn run(broker: &Broker, args: &[&str]) -> Output {
    Command::new(PROGRAM).args(args).env_clear().env("CREDBROKER_SOCKET", broker.socket()).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
