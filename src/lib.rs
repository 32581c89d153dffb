//! credbroker: a local credential broker for Kubernetes.
//!
//! One daemon runs each exec credential plugin once, keeps the credential fresh, and serves it over gRPC on a Unix socket
//! to every process that is allowed to use it. See `CONTRIBUTING.md` for the map of the modules; dependencies point one
//! way: `main → cli → app → {server, hub} → cache → {exec, plugin, verify, clock} → credential`.

pub mod app;
pub mod cli;
