//! The one table from errors to gRPC statuses.

mod fitted;
#[cfg(test)]
mod tests;

use std::{collections::HashMap, fmt::Write as _, sync::Arc, time::Duration};

use credbroker_proto::{CLUSTER, DOMAIN, KEY, LIMIT, PROVIDER, Reason};
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

use super::places::{Full, TooManyBytes};
use crate::{
    access::Verb,
    cache::{CacheError, Failed},
    credential::{DecodeError, ExecInfoError, LifetimeError, PairError},
    exec::RunError,
    plugin::{PluginKey, PluginSpec, ProfileError, ProfileName, ResolveError},
    text::chain,
};

/// Retry delay when the broker drains or is busy.
const SUCCESSOR: Duration = Duration::from_secs(1);
/// Retry delay when the answer depends on the hub.
const HUB: Duration = Duration::from_secs(2);

/// Maximum bytes of a metadata value. Longer values, which only callers can send, are left out.
const LONGEST_VALUE: usize = 200;

/// What a request resolved to, for the metadata of its errors.
#[derive(Clone, Debug)]
pub(super) struct Subject {
    provider: Arc<str>,
    key: PluginKey,
    profile: Option<ProfileName>,
}

impl Subject {
    pub(super) fn of(spec: &PluginSpec) -> Self {
        let profile = spec.target.as_ref().map(|target| target.profile.clone());
        Self { provider: Arc::clone(&spec.provider.name), key: spec.key, profile }
    }

    pub(super) fn provider(&self) -> &str {
        &self.provider
    }

    pub(super) fn profile(&self) -> Option<&ProfileName> {
        self.profile.as_ref()
    }
}

/// The request itself is not valid.
pub(super) fn invalid(message: &str) -> Status {
    status(Reason::InvalidRequest, message, None, [])
}

/// Why a peer has no right at all.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum NoRights {
    /// There are no access rules, and it is neither the broker's own user nor root.
    Stranger,
    /// No access rule is for it.
    Unlisted,
    /// Its uid identifies no user.
    Unmapped,
}

/// The policy gives the peer no right.
pub(super) fn peer_denied(uid: u32, why: NoRights) -> Status {
    let cause = match why {
        NoRights::Stranger => "it serves its own uid and root; run a broker of your own (`credbroker serve`)",
        NoRights::Unlisted => {
            "no access rule allows this process to use it; ask the operator of the broker for a rule"
        }
        NoRights::Unmapped => {
            "the kernel uses that number for all users that it cannot map; run the broker and the client as another user"
        }
    };
    let message = format!("uid {uid} may not use this broker: {cause}");
    status(Reason::PeerDenied, &message, None, [])
}

/// The peer has rights, but none for this call.
pub(super) fn verb_denied(verb: Verb) -> Status {
    let message = format!(
        "no access rule allows this process to `{}`; ask the operator of the broker for a rule",
        verb.name()
    );
    status(Reason::PeerDenied, &message, None, [])
}

/// The peer is a process of a plugin run.
pub(super) fn descendant() -> Status {
    let message = "a plugin run may not ask the broker; give the plugin a kubeconfig whose users do not run credbroker-exec";
    status(Reason::Recursion, message, None, [])
}

/// The request has no peer.
pub(super) fn no_peer() -> Status {
    status(Reason::PeerDenied, "the connection has no identity", None, [])
}

/// The request leads to no run.
pub(super) fn unresolved(error: &ResolveError) -> Status {
    let metadata = match error {
        ResolveError::IdentityConflict { provider, .. }
        | ResolveError::NeedsTerminal { provider }
        | ResolveError::NoCluster { provider, .. }
        | ResolveError::PluginNotAllowed { provider, .. }
        | ResolveError::PluginNotFound { provider, .. }
        | ResolveError::PluginUnreadable { provider, .. }
        | ResolveError::VariableNotAllowed { provider, .. } => Some((PROVIDER, provider.to_string())),
        ResolveError::AmbiguousProvider { name, .. }
        | ResolveError::ProviderNotAllowed { name }
        | ResolveError::UnknownDefinition { name, .. }
        | ResolveError::UnknownProvider { name, .. } => Some((PROVIDER, name.clone())),
        ResolveError::Profile { profile, .. }
        | ResolveError::ProfileNotAllowed { profile }
        | ResolveError::UnknownProfile { profile, .. } => Some((CLUSTER, profile.to_string())),
        ResolveError::ClusterConfig { .. }
        | ResolveError::ClusterMismatch { .. }
        | ResolveError::ClusterServer
        | ResolveError::HubUnavailable { .. }
        | ResolveError::InvalidVariable { .. } => None,
    };
    status(resolve_reason(error), &chain(error), Some(HUB), metadata)
}

/// The broker reads no ClusterProfiles.
pub(super) fn no_hub() -> Status {
    let message =
        "this broker does not read ClusterProfiles: its configuration has no `clusterProfiles`; add it";
    status(Reason::HubNotConfigured, message, None, [])
}

/// There is no credential for `subject`.
pub(super) fn failed(subject: &Subject, failed: &Failed) -> Status {
    let provider = subject.provider();
    let retry = match &failed.error {
        CacheError::Draining | CacheError::Pending(_) | CacheError::TooManyWaiting => SUCCESSOR,
        _ => failed.retry_after,
    };
    let mut message = format!("provider `{provider}`: {}", chain(&failed.error));
    let reason = cache_reason(&failed.error);
    let needs_person = matches!(
        failed.error,
        CacheError::Unattended(_)
            | CacheError::Run(RunError::NeedsTerminal { .. } | RunError::TerminalLost { .. })
    );
    if needs_person || waits_for_person(&failed.error) {
        let _infallible = write!(message, "; run `credbroker login {provider}` at a terminal");
    }
    // The error of a throttled issuer already names the command.
    let held = matches!(failed.error, CacheError::Run(_))
        && !waits_for_person(&failed.error)
        && reason != Reason::IssuerThrottled;
    if held && reason.code() == Code::Unavailable && !retry.is_zero() {
        let _infallible = write!(message, "; `credbroker refresh {provider}` runs it at once");
    }
    let limit = match failed.error {
        CacheError::Full(room) => Some(room.key()),
        CacheError::TooManyWaiting => Some("waiting requests"),
        _ => None,
    };
    let named = [(PROVIDER, provider.to_owned()), (KEY, subject.key.to_string())];
    let cluster = subject.profile.as_ref().map(|profile| (CLUSTER, profile.to_string()));
    let limit = limit.map(|limit| (LIMIT, limit.to_owned()));
    status(reason, &message, Some(retry), named.into_iter().chain(cluster).chain(limit))
}

/// Whether a plugin that took too long may have waited for a person: it wrote something.
fn waits_for_person(error: &CacheError) -> bool {
    matches!(error, CacheError::Run(RunError::Timeout { stderr, .. }) if !stderr.is_empty())
}

/// A stream ends because the broker drains.
pub(super) fn draining() -> Status {
    status(Reason::Draining, &CacheError::Draining.to_string(), Some(SUCCESSOR), [])
}

/// One connection too many.
pub(super) fn too_many_connections(full: Full) -> Status {
    let (limit, who, count) = match full {
        Full::Connections(count) => ("limits.connections", "the broker serves", count),
        Full::OpenFiles(count) => {
            let message = format!(
                "the broker serves {count} connections, as many as its limit of open files allows beside plugin runs; try again when one is closed, or raise the limit (`LimitNOFILE=` of systemd, `ulimit -n`)"
            );
            return overloaded("open files", &message, Some(SUCCESSOR));
        }
        Full::Silent(count) => {
            let message = format!(
                "this process has {count} connections without a call, which is the limit; send calls on those, or try again"
            );
            return overloaded("silent connections", &message, Some(SUCCESSOR));
        }
        Full::Process(count) => ("limits.connectionsPerProcess", "this process has", count),
        Full::Uid(count) => ("limits.connectionsPerUid", "the processes of this uid have", count),
    };
    let message = format!(
        "{who} {count} connections, which is the limit (`{limit}`), and all are in use; try again when one is closed"
    );
    overloaded(limit, &message, Some(SUCCESSOR))
}

/// One watch too many on one connection.
pub(super) fn too_many_watches(limit: usize) -> Status {
    let message = format!(
        "this connection has {limit} watches, which is the limit (`limits.watchesPerConnection`); open another connection"
    );
    overloaded("limits.watchesPerConnection", &message, None)
}

/// The unfinished requests of one connection are too large, or the bytes of all connections of a process or a uid.
pub(super) fn too_many_bytes(TooManyBytes { name, limit }: TooManyBytes) -> Status {
    if name.starts_with("limits.") {
        let message = format!(
            "the unfinished requests and unread answers of this process or uid exceed {limit} bytes, which is the limit (`{name}`); finish and read some"
        );
        return overloaded(name, &message, Some(SUCCESSOR));
    }
    let limit = limit >> 20;
    let message = format!(
        "the unfinished requests of this connection exceed {limit} MiB, which is the limit; finish some, or open another connection"
    );
    overloaded(name, &message, None)
}

/// A request was not received in time.
pub(super) fn unfinished(limit: Duration) -> Status {
    let message = format!("the request was not received completely within {limit:?}; send it again");
    status(Reason::RequestIncomplete, &message, None, [])
}

/// A panic ended the request. It has no reason, because there is nothing that a client can do.
pub(super) fn defect() -> Status {
    Status::internal("a bug in the broker ended this request; please report it")
}

fn overloaded(limit: &str, message: &str, retry: Option<Duration>) -> Status {
    status(Reason::Overloaded, message, retry, [(LIMIT, limit.to_owned())])
}

/// Makes every status. The message ends with the reason, for clients that do not decode details.
fn status(
    reason: Reason,
    message: &str,
    retry: Option<Duration>,
    metadata: impl IntoIterator<Item = (&'static str, String)>,
) -> Status {
    let mut details = ErrorDetails::new();
    let metadata = metadata.into_iter().filter(|(_, value)| value.len() <= LONGEST_VALUE);
    let metadata: HashMap<_, _> = metadata.map(|(name, value)| (name.to_owned(), value)).collect();
    details.set_error_info(reason.name(), DOMAIN, metadata);
    let code = reason.code();
    if matches!(code, Code::Unavailable | Code::ResourceExhausted) {
        details.set_retry_info(retry);
    }
    Status::with_error_details(code, fitted::fitted(format!("{message} ({})", reason.name())), details)
}

/// The stable reason why a request leads to no run.
pub(super) fn resolve_reason(error: &ResolveError) -> Reason {
    match error {
        ResolveError::AmbiguousProvider { .. } => Reason::AmbiguousProvider,
        ResolveError::ClusterMismatch { .. } => Reason::ClusterMismatch,
        ResolveError::HubUnavailable { .. } => Reason::HubUnavailable,
        ResolveError::IdentityConflict { .. } => Reason::IdentityConflict,
        ResolveError::Profile { source, .. } => profile_reason(source),
        ResolveError::UnknownProfile { is_configured: false, .. } => Reason::HubNotConfigured,
        ResolveError::UnknownProfile { is_configured: true, .. } => Reason::UnknownClusterProfile,
        ResolveError::ClusterConfig { .. }
        | ResolveError::ClusterServer
        | ResolveError::InvalidVariable { .. }
        | ResolveError::NoCluster { .. } => Reason::InvalidRequest,
        ResolveError::NeedsTerminal { .. } => Reason::InteractionRequired,
        ResolveError::PluginNotAllowed { .. } => Reason::PluginNotAllowed,
        ResolveError::PluginNotFound { .. } | ResolveError::PluginUnreadable { .. } => Reason::PluginNotFound,
        ResolveError::ProfileNotAllowed { .. } | ResolveError::ProviderNotAllowed { .. } => {
            Reason::PeerDenied
        }
        ResolveError::UnknownDefinition { .. } => Reason::UnknownDefinition,
        ResolveError::UnknownProvider { .. } => Reason::UnknownProvider,
        ResolveError::VariableNotAllowed { .. } => Reason::VariableNotAllowed,
    }
}

/// The stable reason why a profile cannot be used.
pub(super) fn profile_reason(error: &ProfileError) -> Reason {
    match error {
        ProfileError::NoMatch { .. } => Reason::NoMatchingProvider,
        ProfileError::Invalid { .. }
        | ProfileError::Malformed { .. }
        | ProfileError::Repeated { .. }
        | ProfileError::VariableDenied { .. }
        | ProfileError::VariableNotAllowed { .. } => Reason::ClusterProfileInvalid,
    }
}

/// The stable reason of a failure.
pub(super) fn cache_reason(error: &CacheError) -> Reason {
    match error {
        CacheError::Draining => Reason::Draining,
        CacheError::Full(_) | CacheError::TooManyWaiting => Reason::Overloaded,
        CacheError::Pending(_) => Reason::RunPending,
        CacheError::Retired(_) => Reason::ProviderChanged,
        CacheError::Unattended(_) => Reason::InteractionRequired,
        CacheError::Lifetime { source: LifetimeError::Certificate { .. }, .. } => Reason::CertExpired,
        CacheError::Lifetime { source: LifetimeError::Credential { .. }, .. } => Reason::ExpiredOutput,
        CacheError::Lifetime { source: LifetimeError::NotYetValid { .. }, .. } => Reason::OutputInvalid,
        CacheError::Run(error) => run_reason(error),
    }
}

fn run_reason(error: &RunError) -> Reason {
    match error {
        RunError::Decode { source, .. } => decode_reason(source),
        RunError::ArgumentsTooLong { .. }
        | RunError::ExecInfo { source: ExecInfoError::TooLarge { .. }, .. } => Reason::ExecInfoTooLarge,
        RunError::ExecInfo { source: ExecInfoError::Config { .. }, .. } => Reason::InvalidRequest,
        RunError::Exit { .. } => Reason::PluginExit,
        RunError::NeedsTerminal { .. } | RunError::TerminalLost { .. } => Reason::InteractionRequired,
        RunError::NotAllowed { .. } => Reason::PluginNotAllowed,
        RunError::NotFound { .. } | RunError::Unreadable { .. } => Reason::PluginNotFound,
        RunError::OutputTooLarge { .. } => Reason::OutputTooLarge,
        RunError::Directory { .. }
        | RunError::Panicked { .. }
        | RunError::Spawn { .. }
        | RunError::Unanswered { .. } => Reason::SpawnFailed,
        RunError::Recursion { .. } => Reason::Recursion,
        RunError::Signal { .. } => Reason::PluginSignal,
        RunError::Throttled { .. } => Reason::IssuerThrottled,
        RunError::Timeout { .. } => Reason::PluginTimeout,
    }
}

fn decode_reason(error: &DecodeError) -> Reason {
    match error {
        DecodeError::BadTimestamp { .. } => Reason::BadTimestamp,
        DecodeError::Document { .. }
        | DecodeError::Empty
        | DecodeError::NotAnObject { .. }
        | DecodeError::TokenBlank { .. }
        | DecodeError::TokenControl { .. }
        | DecodeError::TokenNotAscii { .. }
        | DecodeError::WrongKind { .. }
        | DecodeError::WrongType { .. } => Reason::OutputInvalid,
        DecodeError::HalfPair { .. } | DecodeError::NoCredential | DecodeError::NoStatus => {
            Reason::NoCredential
        }
        DecodeError::Pair(error) => pair_reason(error),
        DecodeError::VersionMismatch { .. } | DecodeError::VersionMissing { .. } => Reason::VersionMismatch,
    }
}

fn pair_reason(error: &PairError) -> Reason {
    match error {
        PairError::KeyMismatch | PairError::LeafNotFirst { .. } => Reason::KeyMismatch,
        PairError::Base64 { .. }
        | PairError::CertificateMissing
        | PairError::CertificateUnreadable { .. }
        | PairError::ChainTooLong { .. }
        | PairError::EncryptedKey
        | PairError::KeyMissing
        | PairError::KeyUnreadable
        | PairError::PemBroken { .. }
        | PairError::Secp256k1
        | PairError::Swapped => Reason::OutputInvalid,
    }
}
