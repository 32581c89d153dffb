//! The one table from errors to gRPC statuses.

mod denied;
mod fitted;
mod limits;
mod reasons;
#[cfg(test)]
mod tests;

use std::{collections::HashMap, fmt::Write as _, sync::Arc, time::Duration};

use credbroker_proto::{CLUSTER, DOMAIN, KEY, LIMIT, PROVIDER, Reason, to_tonic};
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

pub(super) use self::{
    denied::{NoRights, descendant, login_denied, no_peer, peer_denied, verb_denied},
    limits::refusal,
    reasons::{cache_reason, profile_reason, resolve_reason},
};
use credbroker_cache::{CacheError, Failed};
use credbroker_credential::text::chain;
use credbroker_fleet::resolver::Source;
use credbroker_plugin::{PluginKey, PluginSpec, ProfileName, ResolveError};
use credbroker_runner::RunError;

/// Retry delay when the broker drains or is busy.
const SUCCESSOR: Duration = Duration::from_secs(1);
/// Shortest retry delay when the answer depends on the hub.
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

/// The request, which names `source`, leads to no run.
pub(super) fn unresolved(error: &ResolveError, source: &Source) -> Status {
    let provider = match error {
        ResolveError::ClusterConfig { provider, .. }
        | ResolveError::ClusterMismatch { provider, .. }
        | ResolveError::ClusterServer { provider }
        | ResolveError::ClusterUnread { provider, .. }
        | ResolveError::IdentityConflict { provider, .. }
        | ResolveError::InvalidVariable { provider, .. }
        | ResolveError::NeedsTerminal { provider }
        | ResolveError::NoCluster { provider, .. }
        | ResolveError::PluginNotAllowed { provider, .. }
        | ResolveError::PluginNotFound { provider, .. }
        | ResolveError::PluginUnreadable { provider, .. }
        | ResolveError::VariableNotAllowed { provider, .. } => Some(provider.to_string()),
        ResolveError::AmbiguousProvider { name, .. }
        | ResolveError::ProviderNotAllowed { name }
        | ResolveError::UnknownDefinition { name, .. }
        | ResolveError::UnknownProvider { name, .. } => Some(name.clone()),
        ResolveError::Profile { .. }
        | ResolveError::ProfileNotAllowed { .. }
        | ResolveError::ProfileUnread { .. }
        | ResolveError::UnknownProfile { .. } => None,
    };
    let cluster = match source {
        Source::Provider(_) => None,
        Source::ClusterProfile(profile) => Some((CLUSTER, profile.to_string())),
    };
    let metadata = provider.map(|provider| (PROVIDER, provider)).into_iter().chain(cluster);
    let retry = match error {
        ResolveError::ClusterUnread { retry_after, .. } | ResolveError::ProfileUnread { retry_after, .. } => {
            HUB.max(*retry_after)
        }
        _ => HUB,
    };
    status(resolve_reason(error), &chain(error), Some(retry), metadata)
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
        CacheError::Draining | CacheError::Pending(_) => SUCCESSOR,
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
    if held && to_tonic(reason.code()) == Code::Unavailable && !retry.is_zero() {
        let _infallible = write!(message, "; to run it now, use `credbroker refresh {provider}`");
    }
    let limit = match failed.error {
        CacheError::Full(full) => Some(full.key()),
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

/// A panic ended the request. It has no reason, because there is nothing that a client can do.
pub(super) fn defect() -> Status {
    Status::internal("a bug in the broker ended this request; please report it")
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
    let code = to_tonic(reason.code());
    if retry.is_some() && matches!(code, Code::Unavailable | Code::ResourceExhausted) {
        details.set_retry_info(retry);
    }
    Status::with_error_details(code, fitted::fitted(format!("{message} ({})", reason.name())), details)
}
