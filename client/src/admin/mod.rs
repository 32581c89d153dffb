//! Calls that show and change what the broker holds: [`Client::admin`](crate::Client::admin).

mod broker;
pub(crate) mod client;
mod configuration;
mod explanation;
mod key_part;
mod state;

pub use broker::{BrokerInfo, ProviderState};
pub use client::{Admin, Selector};
pub use configuration::ConfigurationState;
pub use explanation::{CredentialExplanation, CredentialLifetime, LifetimeBound, RunCause};
pub use key_part::{KeyPart, KeyPartKind, KeyPartOrigin};
pub use state::{CredentialState, Rejections, State, Verdict};
