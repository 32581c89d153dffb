//! Access rules: which peer may request which credentials. Pure.
//!
//! A [`Policy`] has the rules of the configuration. It gives [`Rights`] to a [`Principal`], and a [`Permit`] carries these
//! rights, with the verb of one call, to the resolver.

mod permit;
mod policy;
mod principal;
mod rights;
mod rule;
mod verb;

pub use permit::Permit;
pub use policy::Policy;
pub use principal::{Facts, Principal, Process};
pub use rights::Rights;
pub use rule::{CallTarget, Grant, Peers, ProfileGlobs, Rule};
pub use verb::{Verb, Verbs};

#[cfg(test)]
mod tests;
