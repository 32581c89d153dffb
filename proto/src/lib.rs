//! The gRPC contract of credbroker: messages, the stable error [`Reason`]s, and with the features `client` and `server`
//! tonic's clients and servers. [`v1`] is stable; [`v1alpha1`], for logins and administration, may change with any release.
//!
//! The code in both is generated from the files under `credbroker/` and committed, so that no build needs `protoc`; a test
//! generates it again and fails on a difference.

mod code;
#[cfg(feature = "tonic")]
mod codec;
mod globs;
mod reason;
mod redacted;

pub use code::Code;
#[cfg(feature = "tonic")]
pub use code::{from_tonic, to_tonic};
pub use globs::{
    Globs, IDENTITY_VARIABLES, SESSION_VARIABLES, is_account_variable, is_identity_variable,
    is_of_all_programs,
};
pub use reason::{CLUSTER, CONTEXT, DOMAIN, ID, LIMIT, PROVIDER, Reason};

/// The most bytes of stdout of a plugin that a caller runs in its own terminal. A request to the broker has at most 256 KiB.
pub const LEASED_OUTPUT: usize = 128 << 10;

/// Messages, client and server of the package `credbroker.v1`: what a service needs.
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

/// Messages, clients and servers of the package `credbroker.v1alpha1`: logins and administration.
#[allow(
    missing_docs,
    unreachable_pub,
    clippy::all,
    clippy::pedantic,
    reason = "generated; every field is described in the .proto"
)]
pub mod v1alpha1 {
    include!("generated/credbroker.v1alpha1.rs");
}

/// The encoded `FileDescriptorSet` of both packages, for server reflection.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!("generated/descriptors.bin");
