//! A credential that is always the current one.

pub(crate) mod handle;
mod registry;
mod report;
mod scope;
mod state;

pub use handle::CredentialSource;
pub(crate) use registry::Sources;
