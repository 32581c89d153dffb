//! The gRPC contract of credbroker, `credbroker.v1`: messages, client, server (feature `server`), and the stable
//! error [`Reason`]s.
//!
//! The code under [`v1`] is generated from `credbroker/v1/credbroker.proto` and committed, so that nobody needs
//! `protoc`; a test generates it again and fails on a difference.

mod reason;
mod redacted;

pub use reason::{DOMAIN, Reason};

/// Messages, client and server of the package `credbroker.v1`.
#[allow(
    missing_docs,
    unreachable_pub,
    clippy::all,
    clippy::pedantic,
    reason = "generated; every field is described in the .proto"
)]
pub mod v1 {
    include!("generated/credbroker.v1.rs");
}

/// The variable that the broker sets for every plugin: a file that the shim creates when a plugin's own kubeconfig leads
/// back to it, before it refuses.
pub const RECURSION_VARIABLE: &str = "CREDBROKER_RECURSION";

/// The encoded `FileDescriptorSet` of the package, for server reflection.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!("generated/credbroker.v1.bin");
