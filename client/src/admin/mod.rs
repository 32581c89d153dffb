//! Calls that show and change what the broker holds: [`Client::admin`](crate::Client::admin).

pub(crate) mod client;
mod state;

pub use client::{Admin, Selector};
pub use state::{BrokerInfo, ConfigurationState, CredentialState, ProviderState, Rejections, State, Verdict};
