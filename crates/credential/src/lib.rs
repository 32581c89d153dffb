//! Credentials as plugins issue them: values and the `ExecCredential` documents. Pure; no I/O.

mod certificate;
pub mod document;
pub mod encoded;
mod exec_credential;
mod issued;
mod jwt;
mod key;
mod lifetime;
mod material;
mod pair;
mod pem;
#[cfg(any(test, feature = "test-util"))]
pub mod testing;
pub mod text;
mod timestamp;

pub use encoded::{Draft, EncodeFn, EncodedCredential};
pub use exec_credential::{ApiVersion, Cluster, DecodeError, Decoded, ExecInfoError, decode, exec_info};
pub use issued::{Generation, Issued, Now, Validity};
pub use lifetime::{Lifetime, LifetimeBound, LifetimeError, LifetimeLimits, lifetime};
pub use material::{ClientPair, Fingerprint, Material, Token};
pub use pair::PairError;
pub use timestamp::rfc3339;
