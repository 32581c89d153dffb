//! What a broker holds.

use std::{collections::BTreeMap, time::SystemTime};

use credbroker_proto::v1alpha1::{self, credential_state};

use crate::{failure::Failure, reference::ClusterProfileRef};

/// A credential in the broker's cache, without its secrets.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "_serialize", derive(serde::Serialize), serde(rename_all = "camelCase"))]
#[non_exhaustive]
pub struct CredentialState {
    /// The name of its provider.
    pub provider: String,
    /// The definition of the provider. `None`: the broker's configuration defines it.
    pub definition: Option<String>,
    /// The `ClusterProfile` that it is for. `None`: it was requested by the provider's name.
    pub cluster_profile: Option<ClusterProfileRef>,
    /// Its name in the cache: a hash of everything that can change the plugin's output.
    pub id: String,
    /// URL of the cluster that it is for, if the broker knows it.
    pub server: Option<String>,
    /// The names of the caller's variables that the plugin receives.
    pub caller_env: Vec<String>,
    /// Whether it can be served.
    pub state: State,
    /// Its generation. `None`: there is no credential now.
    pub generation: Option<String>,
    /// When the broker stops serving it.
    #[cfg_attr(
        feature = "_serialize",
        serde(rename = "expirationTime", serialize_with = "crate::serialize::time")
    )]
    pub expires_at: Option<SystemTime>,
    /// When the broker refreshes it, if it is in use.
    #[cfg_attr(
        feature = "_serialize",
        serde(rename = "nextRefreshTime", serialize_with = "crate::serialize::time")
    )]
    pub next_refresh: Option<SystemTime>,
    /// Open watches.
    pub watches: u32,
    /// Plugin runs so far.
    pub runs: u64,
    /// Why the last run failed.
    pub last_failure: Option<Failure>,
    /// Failed runs since the last successful one.
    pub failed_attempts: u32,
    /// Rejections by the API server. `None`: none was reported or suspected.
    pub rejections: Option<Rejections>,
    /// When the broker received it.
    #[cfg_attr(feature = "_serialize", serde(skip))]
    pub fetched_at: Option<SystemTime>,
    /// The earliest of all bounds, which sets `expires_at`: a name such as `tokenExp`, of the contract's
    /// `CredentialState.Bound`. `None`: there is no credential now.
    #[cfg_attr(feature = "_serialize", serde(skip))]
    pub bound: Option<String>,
    /// Why the plugin runs next, or does not: a name such as `refreshPoint`, of the contract's `CredentialState.Cause`.
    #[cfg_attr(feature = "_serialize", serde(skip))]
    pub next_run_cause: String,
    /// No run starts before this time, except for a rejection or when a user asks for one. `None`: the cause does not wait
    /// for a time.
    #[cfg_attr(feature = "_serialize", serde(skip))]
    pub next_run: Option<SystemTime>,
    /// Everything that `id` is made of. Only [`Admin::explain`](super::Admin::explain) sets it.
    #[cfg_attr(feature = "_serialize", serde(skip))]
    pub id_parts: Vec<IdPart>,
    /// The variables that select the account, and their values of at most 64 characters. Empty also if this process does not
    /// run as the broker's user.
    pub account: BTreeMap<String, String>,
    /// The kubeconfig that defines the provider. `None`: the broker's configuration defines it.
    pub definition_file: Option<String>,
    /// Whether the caller that [`Admin::for_caller`](super::Admin::for_caller) names gets it for the same cluster.
    pub is_of_caller: bool,
}

/// A part of an id.
#[derive(Clone, Debug, Eq, PartialEq)]
#[cfg_attr(feature = "_serialize", derive(serde::Serialize), serde(rename_all = "camelCase"))]
#[non_exhaustive]
pub struct IdPart {
    /// What it is: a name such as `variable`, of the contract's `IdPart.Kind`.
    pub kind: String,
    /// The name of a variable or of a field of the cluster, or the position of an argument; otherwise empty.
    pub name: String,
    /// Where the value comes from: a name such as `callerEnv`, of the contract's `IdPart.Origin`.
    pub origin: String,
    /// A number instead of the value. In one page, parts of one kind and name of credentials with one provider have equal
    /// values if and only if their numbers are equal.
    pub value_number: u32,
}

/// Whether a credential can be served.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[cfg_attr(feature = "_serialize", derive(serde::Serialize), serde(rename_all = "lowercase"))]
#[non_exhaustive]
pub enum State {
    /// It is valid.
    Valid,
    /// It is valid, and a run for its replacement is in flight or the last such run failed.
    Refreshing,
    /// There is none, and a run is in flight.
    Waiting,
    /// There is none, because the last run failed.
    Failed,
    /// There is none. The next request starts a run.
    Empty,
    /// A state that this release does not know.
    Unknown,
}

/// Reported and suspected rejections, and what the broker did about them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[cfg_attr(feature = "_serialize", derive(serde::Serialize), serde(rename_all = "camelCase"))]
#[non_exhaustive]
pub struct Rejections {
    /// Rejections of all generations that a client reported or an API server confirmed.
    pub rejections: u64,
    /// How often the broker asked the API server whether it accepts the credential.
    pub verifications: u64,
    /// The result of the last verification. `None`: there was none.
    pub last_verdict: Option<Verdict>,
    /// No rejection starts a run before this time. `None`: the next one may.
    #[cfg_attr(
        feature = "_serialize",
        serde(rename = "nextRunTime", serialize_with = "crate::serialize::time")
    )]
    pub next_run: Option<SystemTime>,
}

/// What an API server says about a credential.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[cfg_attr(feature = "_serialize", derive(serde::Serialize), serde(rename_all = "lowercase"))]
#[non_exhaustive]
pub enum Verdict {
    /// It answered 401.
    Rejected,
    /// It accepted the credential.
    Accepted,
    /// The answer was not conclusive, or the broker has no API server to ask.
    Unverifiable,
    /// A verdict that this release does not know.
    Unknown,
}

impl CredentialState {
    pub(crate) fn from_message(message: v1alpha1::CredentialState) -> Self {
        let state = State::from_message(message.state());
        let bound = message.bound.map(|_| name(message.bound().as_str_name()));
        let next_run_cause = name(message.next_run_cause().as_str_name());
        let v1alpha1::CredentialState {
            provider,
            definition,
            cluster_profile,
            id,
            server,
            caller_env,
            state: _,
            generation,
            expiration_time,
            next_refresh_time,
            watches,
            runs,
            last_failure,
            failed_attempts,
            rejections,
            fetch_time,
            bound: _,
            next_run_cause: _,
            next_run_time,
            id_parts,
            account,
            definition_file,
            is_of_caller,
        } = message;
        Self {
            provider,
            definition,
            cluster_profile: cluster_profile.map(ClusterProfileRef::from_message),
            id,
            server,
            caller_env,
            state,
            generation,
            expires_at: time(expiration_time),
            next_refresh: time(next_refresh_time),
            watches,
            runs,
            last_failure: last_failure.map(Failure::from_message),
            failed_attempts,
            rejections: rejections.map(Rejections::from_message),
            fetched_at: time(fetch_time),
            bound,
            next_run_cause,
            next_run: time(next_run_time),
            id_parts: id_parts.into_iter().map(IdPart::from_message).collect(),
            account: account.into_iter().map(|variable| (variable.name, variable.value)).collect(),
            definition_file,
            is_of_caller,
        }
    }
}

impl IdPart {
    fn from_message(message: v1alpha1::IdPart) -> Self {
        let (kind, origin) = (name(message.kind().as_str_name()), name(message.origin().as_str_name()));
        let v1alpha1::IdPart { kind: _, name, origin: _, value_number } = message;
        Self { kind, name: name.unwrap_or_default(), origin, value_number }
    }
}

/// The name of a value of an enum without the name of the enum, as in JSON: `refreshPoint` for `CAUSE_REFRESH_POINT`, and
/// `unknown` for a value that this release does not know.
fn name(value: &str) -> String {
    let mut name = String::with_capacity(value.len());
    for (place, word) in value.split('_').skip(1).enumerate() {
        let (first, rest) = word.split_at(usize::from(place > 0).min(word.len()));
        name.push_str(first);
        name.push_str(&rest.to_lowercase());
    }
    if name == "unspecified" { "unknown".to_owned() } else { name }
}

impl State {
    fn from_message(state: credential_state::State) -> Self {
        match state {
            credential_state::State::Unspecified => Self::Unknown,
            credential_state::State::Valid => Self::Valid,
            credential_state::State::Refreshing => Self::Refreshing,
            credential_state::State::Waiting => Self::Waiting,
            credential_state::State::Failed => Self::Failed,
            credential_state::State::Empty => Self::Empty,
        }
    }
}

impl Rejections {
    fn from_message(message: credential_state::Rejections) -> Self {
        let last_verdict = message.last_verdict.map(|_| Verdict::from_message(message.last_verdict()));
        let credential_state::Rejections { rejections, verifications, last_verdict: _, next_run_time } =
            message;
        Self { rejections, verifications, last_verdict, next_run: time(next_run_time) }
    }
}

impl Verdict {
    fn from_message(verdict: credential_state::Verdict) -> Self {
        match verdict {
            credential_state::Verdict::Unspecified => Self::Unknown,
            credential_state::Verdict::Rejected => Self::Rejected,
            credential_state::Verdict::Accepted => Self::Accepted,
            credential_state::Verdict::Unverifiable => Self::Unverifiable,
        }
    }
}

pub(super) fn time(time: Option<prost_types::Timestamp>) -> Option<SystemTime> {
    time.and_then(|time| SystemTime::try_from(time).ok())
}
