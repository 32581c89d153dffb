//! The gRPC contract of credbroker, `credbroker.v1`: messages, the stable error [`Reason`]s, and with the features
//! `client` and `server` tonic's client and server.
//!
//! The code under [`v1`] is generated from `credbroker/v1/credbroker.proto` and committed, so that no build needs
//! `protoc`; a test generates it again and fails on a difference.

mod code;
#[cfg(feature = "tonic")]
mod codec;
mod globs;
mod reason;
mod redacted;

pub use code::Code;
#[cfg(feature = "tonic")]
pub use code::{from_tonic, to_tonic};
pub use globs::{Globs, IDENTITY_VARIABLES, SESSION_VARIABLES};
pub use reason::{CLUSTER, DOMAIN, KEY, LIMIT, PROVIDER, Reason};

/// The environment variable that marks a plugin's process tree, so that a plugin whose own kubeconfig leads back to
/// the broker fails at once instead of starting itself in a loop.
///
/// The broker sets it for every plugin, to the absolute path of a file that does not exist. A shim that finds it set
/// creates that file (exclusively, following no link, mode 0600), says so in one line on stderr, and exits 1 without
/// calling the broker; the broker sees the file and ends the run as [`Reason::Recursion`].
pub const RECURSION_VARIABLE: &str = "CREDBROKER_RECURSION";

/// The most bytes of stdout of a plugin that a caller runs in its own terminal. A request to the broker has at most 256 KiB.
pub const LEASED_OUTPUT: usize = 128 << 10;

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

/// The encoded `FileDescriptorSet` of the package, for server reflection.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!("generated/credbroker.v1.bin");
