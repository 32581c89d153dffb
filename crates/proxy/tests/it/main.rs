//! The proxy between real connections: a broker that speaks the real protocol, and API servers with real TLS.
#![expect(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "set-up that fails ends its test where it failed; tests read clocks"
)]

mod bodies;
#[expect(dead_code, reason = "the tests of credbroker-client share it")]
#[path = "../../../../client/tests/it/broker.rs"]
mod broker;
mod contexts;
mod ends;
mod errors;
mod records;
mod requests;
mod rotation;
mod setting;
mod upgrades;
mod upstream;
mod usage;
