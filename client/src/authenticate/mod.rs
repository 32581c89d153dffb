//! A tower layer that sends requests with a credential.

mod destination;
mod error;
mod layer;
mod policy;
mod repeat;
mod service;
#[cfg(test)]
mod tests;

pub use destination::Destination;
pub use error::AuthenticateError;
pub use layer::Authenticate;
pub use repeat::{Repeat, WithoutBody};
pub use service::{AnsweredElsewhere, Authenticated, SentWith};
