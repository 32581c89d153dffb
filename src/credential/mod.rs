//! Credentials as plugins issue them: values and the `ExecCredential` documents. Pure; no I/O.

mod certificate;
pub(crate) mod encoded;
mod exec_credential;
mod issued;
mod jwt;
mod key;
mod lifetime;
mod material;
mod pair;
mod pem;
mod timestamp;

pub use encoded::{Draft, EncodeFn, EncodedCredential};
pub use exec_credential::{ApiVersion, Cluster, DecodeError, Decoded, ExecInfoError, decode, exec_info};
#[cfg(test)]
pub(crate) use issued::tests::with_token;
pub use issued::{Generation, Issued, Now, Validity};
pub use lifetime::{Lifetime, LifetimeBound, LifetimeError, LifetimeLimits, lifetime};
pub use material::{ClientPair, Fingerprint, Material, Token};
pub use pair::PairError;
pub(crate) use timestamp::rfc3339;
