//! Resolves a `ClusterProfile` object to one plugin invocation, according to KEP-4322 (multi-cluster access by exec
//! plugins). Pure.
//!
//! A profile lists access providers for its cluster, each with an endpoint; the broker's configuration has the plugin of
//! each provider. A resolution is a new value and never changes the configuration, so one profile cannot affect another.

mod access;
mod denied;
mod endpoint;
mod extensions;
mod profile;
mod resolve;
mod sourced;
#[cfg(test)]
mod tests;

pub use access::Skipped;
pub use endpoint::EndpointRules;
pub use profile::{AccessProvider, ClusterProfile};
pub use resolve::{Resolution, resolve};
