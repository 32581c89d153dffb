//! Real clients, the real broker and the real shim, against an API server that checks who asks.
//!
//! They need programs that `cargo test` does not build or find by itself, so the target runs only by name, after the
//! commands of CONTRIBUTING.md. The variable `SHIM` names another shim to test, such as the static artifact. The tests in `real`
//! use a real API server: `CREDBROKER_CONTROLPLANE` names its directory, and `tests/interop/run.sh controlplane` starts it.
#![expect(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests start processes, read their environment, and stop where something is missing"
)]

mod channels;
mod fleet;
mod fleet_controller;
mod inventory;
mod kube_loop;
mod kubectl;
mod kubelogin;
mod programs;
mod readme;
mod real;
mod repeats;
mod secretreader;
mod spiffe;
mod systemd;
mod users;
