//! A credential that is always the current one.

pub(crate) mod handle;
mod report;
mod scope;
mod state;

pub use handle::CredentialSource;
