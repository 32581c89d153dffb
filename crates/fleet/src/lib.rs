//! The fleet: ClusterProfiles, and how a request finds its plugin among them.
//!
//! A [`Fleet`] has the known ClusterProfiles, each resolved to a plugin invocation when it changed. [`hub`] reads them from
//! the API server that holds the inventory, and fetches credentials ahead. [`resolver`] turns a request into one invocation:
//! of a provider, or of the target of a ClusterProfile. [`ApiVerifier`] asks an API server whether it accepts a credential.

mod fleet;
pub mod hub;
pub mod resolver;
mod verify;

pub use fleet::{Fleet, HubState, KnownProfile, ProfileChange};
pub use verify::ApiVerifier;
