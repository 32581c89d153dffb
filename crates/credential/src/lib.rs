//! Credentials as plugins issue them. Pure: no I/O.
//!
//! [`exec_info`] writes the input of a plugin, and [`decode`] reads its output: a [`Material`], whose certificate and key
//! were checked against each other. [`lifetime`] says how long it may be served, and [`Issued`] is what is served.
//! [`document`] is one tree for JSON and YAML with positions, and [`text`] makes what others wrote safe to print.

pub mod document;
mod exec_credential;
mod exec_info;
mod issued;
mod key;
mod lifetime;
mod pair;
mod sha256;
#[cfg(any(test, feature = "test-util"))]
pub mod testing;
pub mod text;
mod timestamp;

pub use exec_credential::{DecodeError, Decoded, Material, Token, check, decode};
pub use exec_info::{ApiVersion, Cluster, ExecInfoError, exec_info};
pub use issued::{Draft, EncodeFn, EncodedCredential, Generation, Issued, Now};
pub use lifetime::{Lifetime, LifetimeBound, LifetimeError, LifetimeLimits, lifetime};
pub use pair::{ClientPair, PairError, Validity};
pub use sha256::Sha256;
pub use timestamp::rfc3339;
