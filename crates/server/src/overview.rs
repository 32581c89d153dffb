//! Messages that describe the broker, its credentials and its providers.

use std::{
    collections::{HashMap, hash_map::RandomState},
    hash::BuildHasher as _,
    path::PathBuf,
    sync::Arc,
};

use credbroker_proto::v1::{self as pb, CredentialState, Failure, ProviderState, credential_state};

use super::{broker::Broker, convert, status};
use credbroker_cache::{Holding, KeyStatus, Verdict};
use credbroker_credential::{LifetimeBound, text::chain};
use credbroker_plugin::{KeyPart, PluginSpec, Provider, Providers};
use credbroker_runner::PluginRunner;

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
pub(super) fn broker<R: PluginRunner>(broker: &Broker<R>) -> pb::GetBrokerInfoResponse {
    let configuration = Arc::clone(&broker.configuration.borrow());
    let paths = |paths: &[PathBuf]| paths.iter().map(|path| path.display().to_string()).collect();
    pb::GetBrokerInfoResponse {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        commit: option_env!("CREDBROKER_COMMIT").and_then(|commit| convert::present(commit.to_owned())),
        start_time: Some(broker.started.into()),
        config_files: paths(&configuration.files),
        sockets: paths(&broker.sockets),
        hub: broker.resolver.fleet().map(|fleet| convert::hub(&fleet.hub())),
        configuration: Some(pb::ConfigurationState {
            read_time: Some(configuration.last_success.into()),
            reloads: configuration.reloads,
            problems: configuration.problems.clone(),
            problems_since_time: configuration.problems_since.map(Into::into),
            restart_needed: configuration.restart_needed.iter().map(|key| (*key).to_owned()).collect(),
        }),
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
