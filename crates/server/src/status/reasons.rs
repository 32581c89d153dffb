//! The stable reason of each error.

use credbroker_proto::Reason;

use credbroker_cache::CacheError;
use credbroker_credential::{DecodeError, ExecInfoError, LifetimeError, PairError};
use credbroker_plugin::{ProfileError, ProviderProblem, ResolveError};
use credbroker_runner::{RunErrorKind, StoredError};

/// The stable reason why a request leads to no run.
pub(crate) fn resolve_reason(error: &ResolveError) -> Reason {
    match error {
        ResolveError::AmbiguousProvider(..) => Reason::AmbiguousProvider,
        ResolveError::NoHub(_) => Reason::HubNotConfigured,
        ResolveError::Profile(_, source) => profile_reason(source),
        ResolveError::ContextMismatch(..) => Reason::ClusterMismatch,
        ResolveError::ContextNotAllowed(_)
        | ResolveError::ProfileNotAllowed(_)
        | ResolveError::ProviderNotAllowed(_) => Reason::PeerDenied,
        ResolveError::ProfileUnread(..) => Reason::HubUnavailable,
        ResolveError::Provider(_, problem) => match problem {
            ProviderProblem::ClusterConfig(..)
            | ProviderProblem::ClusterServer
            | ProviderProblem::InvalidVariable(_)
            | ProviderProblem::NoCluster(_) => Reason::InvalidRequest,
            ProviderProblem::ClusterMismatch(..) => Reason::ClusterMismatch,
            ProviderProblem::ClusterUnread(..) => Reason::HubUnavailable,
            ProviderProblem::IdentityConflict { .. } => Reason::IdentityConflict,
            ProviderProblem::NeedsTerminal => Reason::InteractionRequired,
            ProviderProblem::PluginNotAllowed(..) => Reason::PluginNotAllowed,
            ProviderProblem::PluginNotFound(..) | ProviderProblem::PluginUnreadable(..) => {
                Reason::PluginNotFound
            }
            ProviderProblem::VariableNotAllowed(..) => Reason::VariableNotAllowed,
        },
        ResolveError::UnknownContext(_) | ResolveError::UnusableContext(..) => Reason::UnknownContext,
        ResolveError::UnknownDefinition(..) => Reason::UnknownDefinition,
        ResolveError::UnknownProfile(_) => Reason::UnknownClusterProfile,
        ResolveError::UnknownProvider(..) => Reason::UnknownProvider,
    }
}

/// The stable reason why a profile cannot be used.
pub(crate) fn profile_reason(error: &ProfileError) -> Reason {
    match error {
        ProfileError::NoMatch(..) => Reason::NoMatchingProvider,
        ProfileError::Invalid(_) => Reason::ClusterProfileInvalid,
    }
}

/// The stable reason of a failure.
pub(crate) fn cache_reason(error: &CacheError) -> Reason {
    match error {
        CacheError::Draining => Reason::Draining,
        CacheError::Full(_) => Reason::Overloaded,
        CacheError::Pending(_) => Reason::RunPending,
        CacheError::Evicted | CacheError::Retired(_) => Reason::ProviderChanged,
        CacheError::Unattended(_) => Reason::InteractionRequired,
        CacheError::Lifetime(_, source) => lifetime_reason(*source),
        CacheError::Run(error) => match &error.kind {
            RunErrorKind::Decode(source) => decode_reason(source),
            RunErrorKind::ArgumentsTooLong(_) | RunErrorKind::ExecInfo(ExecInfoError::TooLarge(..)) => {
                Reason::ExecInfoTooLarge
            }
            RunErrorKind::ExecInfo(ExecInfoError::Config(..)) => Reason::InvalidRequest,
            RunErrorKind::Exit(_) => Reason::PluginExit,
            RunErrorKind::NeedsTerminal | RunErrorKind::TerminalLost(_) => Reason::InteractionRequired,
            RunErrorKind::NotAllowed(_) => Reason::PluginNotAllowed,
            RunErrorKind::NotFound(_) | RunErrorKind::Unreadable(_) => Reason::PluginNotFound,
            RunErrorKind::OutputTooLarge(_) => Reason::OutputTooLarge,
            RunErrorKind::Directory(..)
            | RunErrorKind::Panicked
            | RunErrorKind::Spawn(_)
            | RunErrorKind::Unanswered => Reason::SpawnFailed,
            RunErrorKind::Recursion => Reason::Recursion,
            RunErrorKind::Stored(error) => stored_reason(error),
            RunErrorKind::Signal(_) => Reason::PluginSignal,
            RunErrorKind::Throttled { .. } => Reason::IssuerThrottled,
            RunErrorKind::Timeout(..) => Reason::PluginTimeout,
        },
    }
}

fn lifetime_reason(error: LifetimeError) -> Reason {
    match error {
        LifetimeError::Certificate(_) => Reason::CertExpired,
        LifetimeError::Credential(_) => Reason::ExpiredOutput,
        LifetimeError::NotYetValid(_) => Reason::OutputInvalid,
    }
}

fn decode_reason(error: &DecodeError) -> Reason {
    match error {
        DecodeError::BadTimestamp { .. } => Reason::BadTimestamp,
        DecodeError::HalfPair { .. } | DecodeError::NoCredential | DecodeError::NoStatus => {
            Reason::NoCredential
        }
        DecodeError::Pair(PairError::KeyMismatch | PairError::LeafNotFirst { .. }) => Reason::KeyMismatch,
        DecodeError::VersionMismatch { .. } | DecodeError::VersionMissing { .. } => Reason::VersionMismatch,
        // The plugin printed something else than a valid credential.
        _ => Reason::OutputInvalid,
    }
}

fn stored_reason(error: &StoredError) -> Reason {
    match error {
        StoredError::Empty(_) | StoredError::Unreadable(..) => Reason::NoCredential,
        StoredError::Invalid(source) => decode_reason(source),
        StoredError::Lifetime(source) => lifetime_reason(*source),
        StoredError::Unanswered => Reason::SpawnFailed,
        StoredError::Untrusted(..) => Reason::PluginNotAllowed,
    }
}
