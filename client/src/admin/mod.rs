//! Calls that show and change what the broker holds: [`Client::admin`](crate::Client::admin).

pub(crate) mod client;
mod explanation;
mod state;

pub use client::{Admin, Selector};
pub use explanation::{
    CredentialExplanation, CredentialLifetime, KeyPart, KeyPartKind, KeyPartOrigin, LifetimeBound, RunCause,
};
pub use state::{BrokerInfo, ConfigurationState, CredentialState, ProviderState, Rejections, State, Verdict};
