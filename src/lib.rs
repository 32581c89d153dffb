//! credbroker: a local credential broker for Kubernetes.
//!
//! One daemon runs each exec credential plugin once, keeps the credential fresh, and serves it over gRPC on a Unix socket
//! to every process that is allowed to use it. `cli` has the commands and uses `app`, which connects the crates that
//! `docs/architecture.md` describes.

pub mod app;
pub mod cli;
