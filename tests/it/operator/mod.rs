//! What an operator sees: logs, metrics, health and the service manager.

mod alerts;
mod exposed;
mod health;
mod http;
mod journal;
mod logs;
mod metrics;
mod notify;
mod observability;
mod restart;
#[cfg(feature = "otlp")]
mod traces;

use std::time::{Duration, Instant};

use credbroker_test_support::Broker;
use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_credbroker");

/// The lines of a JSON log so far.
fn lines(broker: &Broker) -> Vec<Value> {
    parsed(&broker.log())
}

fn parsed(log: &str) -> Vec<Value> {
    log.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}")))
        .collect()
}

/// Those with a message that starts with `start`.
fn with_message<'a>(lines: &'a [Value], start: &str) -> Vec<&'a Value> {
    lines.iter().filter(|line| line["message"].as_str().is_some_and(|text| text.starts_with(start))).collect()
}

/// Waits until `is_so`; a loaded machine may take long.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < deadline, "not reached: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
