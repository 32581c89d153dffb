//! The library against a broker that speaks the real protocol on a real socket.
#![expect(
    clippy::disallowed_methods,
    clippy::panic,
    clippy::unwrap_used,
    reason = "set-up that fails ends its test where it failed; tests read clocks"
)]

mod broker;
#[cfg(feature = "kube")]
mod cluster;
mod fleet;
#[cfg(feature = "kube")]
mod fleet_example;
#[cfg(feature = "kube")]
mod kube;
mod source;
#[cfg(feature = "rustls")]
mod tls;
