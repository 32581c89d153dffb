//! Calls that show and change what the broker holds: [`Client::admin`](crate::Client::admin).

mod broker;
pub(crate) mod client;
mod configuration;
mod state;

pub use broker::{BrokerInfo, ProviderState};
pub use client::{Admin, Selector};
pub use configuration::ConfigurationState;
pub use state::{CredentialState, IdPart, Rejections, State, Verdict};
