//! A credential that is always the current one.

mod changes;
pub(crate) mod handle;
mod report;
mod scope;
mod state;

pub use changes::CredentialChanges;
pub use handle::CredentialSource;
