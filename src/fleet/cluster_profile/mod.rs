//! From a `ClusterProfile` object to one plugin invocation, as KEP-4322 (multi-cluster access by exec plugins) says. Pure.
//!
//! A profile lists the access providers that understand its cluster, each with an endpoint; our configuration says which
//! plugin each provider is. Each resolution is a separate value: nothing that one profile contributes is ever
//! written into the configuration, where the next one would meet it.

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
pub(super) use resolve::{Resolution, resolve};
