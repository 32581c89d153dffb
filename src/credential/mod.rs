//! Credentials as plugins issue them: values and the `ExecCredential` documents. Pure; no I/O.

mod exec_credential;
mod issued;
mod jwt;
mod lifetime;
mod material;
mod pem;
mod timestamp;

pub use exec_credential::{ApiVersion, Cluster, DecodeError, Decoded, ExecInfoError, decode, exec_info};
pub use issued::{Generation, Issued, Now};
pub use lifetime::{Lifetime, LifetimeError, LifetimeLimits, lifetime};
pub use material::{ClientPair, Fingerprint, Material, Token};
