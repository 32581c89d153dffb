//! The broker with a real API server, its ClusterProfile resource, and its verdicts about tokens.

mod control_plane;
mod examples;
mod fleet;
mod proxy;
mod restart;
mod rights;
mod stdin;
mod tokens;

use control_plane::ControlPlane;
