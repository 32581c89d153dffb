//! The clients against a broker that speaks the real protocol on a real socket, and API servers with real TLS.
#![expect(
    clippy::disallowed_methods,
    clippy::panic,
    clippy::unwrap_used,
    reason = "set-up that fails ends its test where it failed; tests read clocks"
)]

#[expect(dead_code, reason = "the tests of credbroker-client share it")]
#[path = "../../../tests/it/broker.rs"]
mod broker;
mod cluster;
mod config;
mod fleet_example;
