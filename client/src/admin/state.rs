//! What a broker says about itself and what it holds.

use std::time::SystemTime;

use credbroker_proto::v1::{self, credential_state};

use crate::{cluster_state::HubState, failure::Failure, reference::ClusterProfileRef};

/// A credential in the broker's cache, without its secrets.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct CredentialState {
    /// The name of its provider.
    pub provider: String,
    /// The definition of the provider. `None`: the broker's configuration defines it.
    pub definition: Option<String>,
    /// The `ClusterProfile` that it is for. `None`: it was requested by the provider's name.
    pub cluster_profile: Option<ClusterProfileRef>,
    /// Its name in the cache: a hash of everything that can change the plugin's output.
    pub key: String,
    /// URL of the cluster that it is for, if the broker knows it.
    pub server: Option<String>,
    /// The names of the caller's variables that the plugin receives.
    pub caller_env: Vec<String>,
    /// Whether it can be served.
    pub state: State,
    /// Its generation. `None`: there is no credential now.
    pub generation: Option<String>,
    /// When the broker stops serving it.
    pub expires_at: Option<SystemTime>,
    /// When the broker renews it, if it is in use.
    pub next_refresh: Option<SystemTime>,
    /// Open watches.
    pub watchers: u32,
    /// Plugin runs so far.
    pub runs: u64,
    /// Why the last run failed.
    pub last_failure: Option<Failure>,
    /// Failed runs since the last successful one.
    pub failed_attempts: u32,
    /// Rejections by the API server. `None`: none was reported or suspected.
    pub rejections: Option<Rejections>,
}

/// Whether a credential can be served.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum State {
    /// It is valid.
    Valid,
    /// It is valid, and a run for its replacement is in flight or the last such run failed.
    Renewing,
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
#[non_exhaustive]
pub struct Rejections {
    /// Rejections of all generations.
    pub rejections: u64,
    /// How often the broker asked the API server whether it accepts the credential.
    pub verifications: u64,
    /// The result of the last verification. `None`: there was none.
    pub last_verdict: Option<Verdict>,
    /// No rejection starts a run before this time. `None`: the next one may.
    pub next_run: Option<SystemTime>,
}

/// What an API server says about a credential.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Verdict {
    /// It answered 401.
    Rejected,
    /// It accepted the credential.
    Accepted,
    /// The answer was not conclusive, or the broker has no API server to ask.
    Unverifiable,
}

/// A provider of the broker.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ProviderState {
    /// Its name.
    pub name: String,
    /// Its definition. `None`: the broker's configuration defines it.
    pub definition: Option<String>,
    /// The plugin's command as configured.
    pub command: String,
    /// Whether `ClusterProfile`s can use it.
    pub serves_cluster_profiles: bool,
    /// Why a run cannot start.
    pub failure: Option<Failure>,
}

/// A running broker.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct BrokerInfo {
    /// Its version.
    pub version: String,
    /// The commit that it was built from, if it is known.
    pub commit: Option<String>,
    /// When it started.
    pub started_at: Option<SystemTime>,
    /// The files that its configuration was read from, kubeconfigs included.
    pub config_files: Vec<String>,
    /// The sockets that it listens on.
    pub sockets: Vec<String>,
    /// The hub. `None`: none is configured.
    pub hub: Option<HubState>,
    /// Which configuration is in force. `None`: the broker does not say.
    pub configuration: Option<ConfigurationState>,
}

/// Which configuration of a broker is in force. The broker follows its files.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct ConfigurationState {
    /// When the files were read last and had no problem.
    pub read_at: Option<SystemTime>,
    /// Changed configurations that were put in force since the broker started.
    pub reloads: u64,
    /// Problems of the files as they are now, each with its place. Not empty: an earlier configuration is in force.
    pub problems: Vec<String>,
    /// Since when the files have problems.
    pub problems_since: Option<SystemTime>,
    /// Keys that have changed, and whose new value is used after a restart.
    pub restart_needed: Vec<String>,
}

impl CredentialState {
    pub(crate) fn from_message(message: v1::CredentialState) -> Self {
        let state = State::from_message(message.state());
        let v1::CredentialState {
            provider,
            definition,
            cluster_profile,
            key,
            server,
            caller_env,
            state: _,
            generation,
            expiration_time,
            next_refresh_time,
            watchers,
            runs,
            last_failure,
            failed_attempts,
            rejections,
        } = message;
        Self {
            provider,
            definition,
            cluster_profile: cluster_profile.map(ClusterProfileRef::from_message),
            key,
            server,
            caller_env,
            state,
            generation,
            expires_at: time(expiration_time),
            next_refresh: time(next_refresh_time),
            watchers,
            runs,
            last_failure: last_failure.map(Failure::from_message),
            failed_attempts,
            rejections: rejections.map(Rejections::from_message),
        }
    }
}

impl State {
    fn from_message(state: credential_state::State) -> Self {
        match state {
            credential_state::State::Unspecified => Self::Unknown,
            credential_state::State::Valid => Self::Valid,
            credential_state::State::Renewing => Self::Renewing,
            credential_state::State::Waiting => Self::Waiting,
            credential_state::State::Failed => Self::Failed,
            credential_state::State::Empty => Self::Empty,
        }
    }
}

impl Rejections {
    fn from_message(message: credential_state::Rejections) -> Self {
        let last_verdict = Verdict::from_message(message.last_verdict());
        let credential_state::Rejections { rejections, verifications, last_verdict: _, next_run_time } =
            message;
        Self { rejections, verifications, last_verdict, next_run: time(next_run_time) }
    }
}

impl Verdict {
    fn from_message(verdict: credential_state::Verdict) -> Option<Self> {
        match verdict {
            credential_state::Verdict::Unspecified => None,
            credential_state::Verdict::Rejected => Some(Self::Rejected),
            credential_state::Verdict::Accepted => Some(Self::Accepted),
            credential_state::Verdict::Unverifiable => Some(Self::Unverifiable),
        }
    }
}

impl ProviderState {
    pub(crate) fn from_message(message: v1::ProviderState) -> Self {
        let v1::ProviderState { name, definition, command, serves_cluster_profiles, failure } = message;
        Self {
            name,
            definition,
            command,
            serves_cluster_profiles,
            failure: failure.map(Failure::from_message),
        }
    }
}

impl BrokerInfo {
    pub(crate) fn from_message(message: v1::GetBrokerInfoResponse) -> Self {
        let v1::GetBrokerInfoResponse {
            version,
            commit,
            start_time,
            config_files,
            sockets,
            hub,
            configuration,
        } = message;
        Self {
            version,
            commit,
            started_at: time(start_time),
            config_files,
            sockets,
            hub: hub.map(HubState::from_message),
            configuration: configuration.map(ConfigurationState::from_message),
        }
    }
}

impl ConfigurationState {
    pub(crate) fn from_message(message: v1::ConfigurationState) -> Self {
        let v1::ConfigurationState { read_time, reloads, problems, problems_since_time, restart_needed } =
            message;
        Self {
            read_at: time(read_time),
            reloads,
            problems,
            problems_since: time(problems_since_time),
            restart_needed,
        }
    }
}

pub(super) fn time(time: Option<prost_types::Timestamp>) -> Option<SystemTime> {
    time.and_then(|time| SystemTime::try_from(time).ok())
}
