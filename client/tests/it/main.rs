//! The library against a broker that speaks the real protocol on a real socket.
#![expect(
    clippy::disallowed_methods,
    clippy::panic,
    clippy::unwrap_used,
    reason = "set-up that fails ends its test where it failed; tests read clocks"
)]

#[expect(dead_code, reason = "the tests of credbroker-kube share it")]
mod broker;
mod fleet;
mod get;
mod source;
#[cfg(feature = "rustls")]
mod tls;
