//! Messages that describe the broker, its credentials and its providers.

use std::{
    collections::{HashMap, hash_map::RandomState},
    hash::BuildHasher as _,
    path::PathBuf,
    sync::Arc,
    time::SystemTime,
};

use credbroker_proto::v1::{self as pb, CredentialState, Failure, ProviderState, credential_state};
use tokio::sync::watch;

use super::{convert, status};
use credbroker_cache::{Holding, KeyStatus, Verdict};
use credbroker_credential::{LifetimeBound, text::chain};
use credbroker_plugin::{KeyPart, PluginSpec, Provider, Providers};

/// State of one provider, and whether its plugin can run.
pub(super) fn provider(providers: &Providers, provider: &Provider) -> ProviderState {
    let failure = providers.is_runnable(provider).err().map(|error| Failure {
        reason: status::resolve_reason(&error).into(),
        message: chain(&error),
        retry_after: None,
    });
    ProviderState {
        name: provider.name.to_string(),
        definition: provider.definition.as_ref().map(|definition| definition.digest().to_owned()),
        command: provider.command.to_string(),
        serves_cluster_profiles: provider.profile_sourced.is_some(),
        failure,
    }
}

/// State of one key, without its credential and the parts of the key.
pub(super) fn state(held: &KeyStatus) -> CredentialState {
    let spec = &held.spec;
    let issued = held.issued.as_ref();
    let (cause, next_run) = held.next_run;
    CredentialState {
        provider: spec.provider.name.to_string(),
        definition: spec.provider.definition.as_ref().map(|definition| definition.digest().to_owned()),
        key: spec.key.to_string(),
        server: spec.endpoint().map(|cluster| cluster.server.clone()),
        caller_env: spec.caller_env.keys().cloned().collect(),
        state: match held.holding {
            Holding::Valid => credential_state::State::Valid,
            Holding::Renewing => credential_state::State::Renewing,
            Holding::Waiting => credential_state::State::Waiting,
            Holding::Failed => credential_state::State::Failed,
            Holding::Empty => credential_state::State::Empty,
        }
        .into(),
        generation: issued.map(|issued| issued.generation.to_string()),
        expiration_time: issued.map(|issued| issued.expires_at.into()),
        next_refresh_time: held.next_refresh.map(Into::into),
        watchers: u32::try_from(held.watchers).unwrap_or(u32::MAX),
        runs: held.runs,
        last_failure: held.failure.as_ref().map(|(failed, _)| Failure {
            reason: status::cache_reason(&failed.error).into(),
            message: chain(&failed.error),
            retry_after: convert::duration(failed.retry_after),
        }),
        failed_attempts: held.failure.as_ref().map_or(0, |(_, attempts)| *attempts),
        cluster_profile: spec.target.as_ref().map(|target| convert::profile(&target.profile)),
        rejections: held.rejections.as_ref().map(|known| credential_state::Rejections {
            rejections: known.count,
            verifications: known.verifications,
            last_verdict: known.verdict.map(|verdict| {
                match verdict {
                    Verdict::Rejected => credential_state::Verdict::Rejected,
                    Verdict::Accepted => credential_state::Verdict::Accepted,
                    Verdict::Unverifiable => credential_state::Verdict::Unverifiable,
                }
                .into()
            }),
            next_run_time: known.next_run.map(Into::into),
        }),
        fetch_time: issued.map(|issued| issued.fetched.wall.into()),
        bound: issued.map(|issued| bound(issued.bound).into()),
        next_run_cause: cause.into(),
        next_run_time: next_run.map(Into::into),
        key_parts: Vec::new(),
    }
}

fn bound(bound: LifetimeBound) -> credential_state::Bound {
    match bound {
        LifetimeBound::ExpirationTimestamp => credential_state::Bound::ExpirationTimestamp,
        LifetimeBound::NotAfter => credential_state::Bound::CertificateNotAfter,
        LifetimeBound::TokenExp => credential_state::Bound::TokenExp,
        LifetimeBound::MaxAge => credential_state::Bound::MaxAge,
        LifetimeBound::UnknownExpiry => credential_state::Bound::UnknownExpiryMaxAge,
        LifetimeBound::ClockSkew => credential_state::Bound::ClockSkew,
    }
}

/// The values of one response. It keeps hashes with a random key, and no value.
#[derive(Debug, Default)]
pub(super) struct ValueNumbers {
    hasher: RandomState,
    /// For each part of a provider, the number of each value.
    numbers: HashMap<u64, HashMap<u64, u32>>,
}

impl ValueNumbers {
    /// The parts of the key of `spec`.
    pub(super) fn key_parts(&mut self, spec: &PluginSpec) -> Vec<pb::KeyPart> {
        let parts = spec.key_parts();
        parts.iter().map(|part| self.part(&spec.provider.name, part)).collect()
    }

    fn part(&mut self, provider: &str, part: &KeyPart<'_>) -> pb::KeyPart {
        let KeyPart { kind, name, origin, value } = part;
        let values = self.numbers.entry(self.hasher.hash_one((provider, kind, name))).or_default();
        let next = u32::try_from(values.len() + 1).unwrap_or(u32::MAX);
        let value_number = *values.entry(self.hasher.hash_one(value)).or_insert(next);
        let name = String::from_utf8_lossy(name).into_owned();
        pb::KeyPart { kind: (*kind).into(), name, origin: (*origin).into(), value_number }
    }
}

/// Facts about a broker.
#[derive(Clone, Debug)]
pub struct BrokerInfo {
    /// Time when the broker started.
    pub started: SystemTime,
    /// The configuration in force, and the problems of a newer one.
    pub configuration: watch::Receiver<Arc<ReloadState>>,
    /// Paths of the sockets that the broker listens on. Sockets without a path are left out.
    pub sockets: Vec<PathBuf>,
}

/// Which configuration is in force, and why a newer one is not.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ReloadState {
    /// Files that the configuration in force was read from.
    pub files: Vec<PathBuf>,
    /// When they were read last and had no problem.
    pub last_success: SystemTime,
    /// Changed configurations that were put in force since the broker started.
    pub reloads: u64,
    /// Changed configurations that were not, since the broker started.
    pub failures: u64,
    /// Why the files are not in force as they are now; `None`: they are.
    pub failure: Option<ReloadFailure>,
    /// Keys that have changed, and whose new value is used after a restart.
    pub restart_needed: Vec<&'static str>,
}

/// Why a changed configuration is not in force.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ReloadFailure {
    /// When the first of the failures in a row was noticed.
    pub since: SystemTime,
    /// Each problem with its file, line and column. At least one.
    pub problems: Vec<String>,
}

impl ReloadState {
    /// The state of a broker that has read `files` at `now`, when it started.
    pub fn started(files: Vec<PathBuf>, now: SystemTime) -> Self {
        Self { files, last_success: now, reloads: 0, failures: 0, failure: None, restart_needed: Vec::new() }
    }
}

impl BrokerInfo {
    pub(super) fn message(&self, hub: Option<pb::HubState>) -> pb::GetBrokerInfoResponse {
        let configuration = Arc::clone(&self.configuration.borrow());
        let failure = configuration.failure.as_ref();
        let paths = |paths: &[PathBuf]| paths.iter().map(|path| path.display().to_string()).collect();
        pb::GetBrokerInfoResponse {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            commit: option_env!("CREDBROKER_COMMIT").and_then(|commit| convert::present(commit.to_owned())),
            start_time: Some(self.started.into()),
            config_files: paths(&configuration.files),
            sockets: paths(&self.sockets),
            hub,
            configuration: Some(pb::ConfigurationState {
                read_time: Some(configuration.last_success.into()),
                reloads: configuration.reloads,
                problems: failure.map(|failure| failure.problems.clone()).unwrap_or_default(),
                problems_since_time: failure.map(|failure| failure.since.into()),
                restart_needed: configuration.restart_needed.iter().map(|key| (*key).to_owned()).collect(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use credbroker_plugin::{PartKind, PartOrigin};

    use super::*;

    #[test]
    fn equal_values_of_one_part_of_a_provider_have_equal_numbers() {
        let mut numbers = ValueNumbers::default();
        let mut number = |provider, kind, name: &'static str, value: &'static str| {
            let (name, value) = (name.as_bytes().into(), value.as_bytes().into());
            let part = KeyPart { kind, name, origin: PartOrigin::Stanza, value };
            numbers.part(provider, &part).value_number
        };
        for (expected, provider, kind, name, value) in [
            (1, "eks", PartKind::Variable, "A", "x"),
            (2, "eks", PartKind::Variable, "A", "y"),
            (1, "eks", PartKind::Variable, "A", "x"),
            (1, "eks", PartKind::Variable, "B", "y"),
            (1, "eks", PartKind::Argument, "A", "y"),
            (1, "gke", PartKind::Variable, "A", "y"),
            (3, "eks", PartKind::Variable, "A", ""),
        ] {
            assert_eq!(number(provider, kind, name, value), expected, "{provider} {kind:?} {name} {value}");
        }
    }
}
