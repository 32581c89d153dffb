//! Converts wire messages to domain values and back, and reads how long a caller waits.

use std::{
    collections::BTreeMap,
    hash::{BuildHasher as _, RandomState},
    sync::{Arc, LazyLock},
    time::Duration,
};

use credbroker_proto::{Reason, is_account_variable, v1 as pb};
use http::HeaderMap;
use prost::Message as _;
use tokio::time::Instant;
use tonic::Status;

use super::{access::Access, status};
use credbroker_cache::Caller;
use credbroker_credential::Cluster;
use credbroker_fleet::{
    HubState,
    resolver::{CredentialRequest, Source},
};
use credbroker_plugin::{ContextId, Origin, ProfileName, ProviderRef, Session, access::Verb};
use credbroker_uds_server::Peer;

/// Maximum part of a caller's deadline that is reserved for the answer to reach the caller.
const MARGIN: Duration = Duration::from_millis(500);

/// Reads the `ref` of a request of this peer, which needs the right to do `verb`.
pub(super) fn ask(
    reference: Option<pb::CredentialRef>,
    access: &Access,
    verb: Verb,
) -> Result<CredentialRequest, Status> {
    let Some(pb::CredentialRef { source: Some(source), cluster, env, account_env }) = reference else {
        return Err(status::invalid(
            "`ref` is empty: set `ref.provider`, `ref.cluster_profile` or `ref.context`",
        ));
    };
    let source = match source {
        pb::credential_ref::Source::Provider(pb::ProviderRef { name, .. }) if name.is_empty() => {
            return Err(status::invalid("`ref.provider.name` is empty"));
        }
        pb::credential_ref::Source::Provider(pb::ProviderRef { name, definition }) => {
            Source::Provider(ProviderRef { name, definition })
        }
        pb::credential_ref::Source::Context(context) => Source::Context(context_id(context, "ref.context")?),
        pb::credential_ref::Source::ClusterProfile(profile) => {
            Source::ClusterProfile(profile_name(profile, "ref.cluster_profile")?)
        }
    };
    // Where the peer runs matters for its variables only, and reading it takes longer than the rest of a call.
    let origin = if env.is_empty() { Origin::default() } else { access.origin() };
    let (cluster, permit) = (cluster.map(|cluster| self::cluster(cluster).into()), access.permit(verb));
    let (env, by_name) = variables(env, account_env);
    Ok(CredentialRequest { source, cluster, env, by_name, origin, permit })
}

/// The reference of an open watch, encoded: thousands wait, and a reference is read again only after a change.
#[derive(Clone)]
pub(super) struct WatchedReference(Arc<[u8]>);

impl WatchedReference {
    pub(super) fn new(reference: Option<&pb::CredentialRef>) -> Self {
        Self(reference.map(pb::CredentialRef::encode_to_vec).unwrap_or_default().into())
    }

    /// What its peer asks for.
    pub(super) fn ask(&self, access: &Access) -> Result<CredentialRequest, Status> {
        let reference = pb::CredentialRef::decode(&*self.0).map_err(|_invalid| status::defect())?;
        ask(Some(reference), access, Verb::Watch)
    }

    /// In bytes.
    pub(super) fn size(&self) -> usize {
        self.0.len()
    }
}

/// The variables of a caller, and the names of those that it sent because these look like the name of an account.
pub(super) fn variables(
    mut env: BTreeMap<String, String>,
    mut account_env: BTreeMap<String, String>,
) -> (BTreeMap<String, String>, Vec<String>) {
    let is_possible = |name: &str, value: &str| is_account_variable(name.as_bytes()) && !value.contains('\0');
    account_env.retain(|name, value| is_possible(name, value) && !env.contains_key(name));
    let by_name = account_env.keys().cloned().collect();
    env.append(&mut account_env);
    (env, by_name)
}

/// Reads the session of a user, if the caller runs where it counts.
pub(super) fn session(sent: BTreeMap<String, String>, access: &Access) -> Option<Arc<Session>> {
    if sent.is_empty() { None } else { Session::of(sent, access.origin()) }
}

/// Reads the profile that `field` of a request names.
pub(super) fn profile_name(profile: pb::ClusterProfileRef, field: &str) -> Result<ProfileName, Status> {
    if profile.namespace.is_empty() || profile.name.is_empty() {
        return Err(status::invalid(&format!("`{field}` needs a namespace and a name")));
    }
    Ok(ProfileName::new(profile.namespace, profile.name))
}

/// Reads the context that `field` of a request names.
pub(super) fn context_id(context: pb::ContextRef, field: &str) -> Result<ContextId, Status> {
    let pb::ContextRef { digest, name } = context;
    if digest.is_empty() || name.is_empty() {
        return Err(status::invalid(&format!("`{field}` needs a digest and a name")));
    }
    Ok(ContextId { name: name.into(), digest: digest.into() })
}

pub(super) fn context(id: &ContextId) -> pb::ContextRef {
    pb::ContextRef { digest: id.digest.to_string(), name: id.name.to_string() }
}

pub(super) fn profile(name: &ProfileName) -> pb::ClusterProfileRef {
    pb::ClusterProfileRef { namespace: name.namespace.to_string(), name: name.name.to_string() }
}

fn cluster(cluster: pb::Cluster) -> Cluster {
    let pb::Cluster {
        server,
        tls_server_name,
        insecure_skip_tls_verify,
        certificate_authority_data,
        proxy_url,
        disable_compression,
        config,
    } = cluster;
    Cluster {
        server,
        tls_server_name: tls_server_name.unwrap_or_default(),
        insecure_skip_tls_verify,
        certificate_authority_data: certificate_authority_data.unwrap_or_default(),
        proxy_url: proxy_url.unwrap_or_default(),
        disable_compression,
        config: config.unwrap_or_default(),
    }
}

pub(super) fn cluster_message(cluster: &Cluster) -> pb::Cluster {
    pb::Cluster {
        server: cluster.server.clone(),
        tls_server_name: present(cluster.tls_server_name.clone()),
        insecure_skip_tls_verify: cluster.insecure_skip_tls_verify,
        certificate_authority_data: Some(cluster.certificate_authority_data.clone())
            .filter(|data| !data.is_empty()),
        proxy_url: present(cluster.proxy_url.clone()),
        disable_compression: cluster.disable_compression,
        config: Some(cluster.config.clone()).filter(|config| !config.is_empty()),
    }
}

pub(super) fn present(text: String) -> Option<String> {
    Some(text).filter(|text| !text.is_empty())
}

pub(super) fn hub(state: &HubState) -> pb::HubState {
    let failure = state.problem.as_deref().map(|problem| pb::Failure {
        reason: Reason::HubUnavailable.into(),
        message: problem.to_owned(),
        ..pb::Failure::default()
    });
    pb::HubState { synced: state.synced, failure, since_time: state.since.map(Into::into) }
}

pub(super) fn duration(duration: Duration) -> Option<prost_types::Duration> {
    duration.try_into().ok()
}

/// Reads how long a credential has to live. Absent: any time.
pub(super) fn min_lifetime(sent: Option<prost_types::Duration>) -> Result<Duration, Status> {
    let prost_types::Duration { seconds, nanos } = sent.unwrap_or_default();
    match (u64::try_from(seconds), u32::try_from(nanos)) {
        (Ok(seconds), Ok(nanos @ 0..1_000_000_000)) => Ok(Duration::new(seconds, nanos)),
        _ => Err(status::invalid(
            "`min_lifetime` must be a duration that is not negative, with `nanos` below 1,000,000,000",
        )),
    }
}

/// The caller with this name, which is empty if the caller sent none. Only a hash of the name is kept.
pub(super) fn named(peer: &Peer, name: &str) -> Caller {
    static HASHES: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    let name = if name.is_empty() { 0 } else { HASHES.hash_one(name).max(1) };
    Caller { name, peer: peer.process(), ..Caller::default() }
}

/// Waits for `event` until the deadline, and returns the rest of the deadline.
pub(super) async fn wait_within(
    deadline: Option<Duration>,
    event: impl Future<Output = ()>,
) -> Option<Duration> {
    let Some(limit) = deadline else {
        event.await;
        return None;
    };
    #[expect(clippy::disallowed_methods, reason = "stops in suspend, as the timer of the deadline does")]
    let started = Instant::now();
    drop(tokio::time::timeout(limit, event).await);
    Some(limit.saturating_sub(started.elapsed()))
}

/// The caller's `grpc-timeout` less a margin, so that the broker can still report what it waits for.
pub(super) fn deadline(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get("grpc-timeout")?.to_str().ok()?;
    let timeout = timeout(text)?;
    Some(timeout.saturating_sub((timeout / 10).min(MARGIN)))
}

/// Parses at most eight digits and a unit, as gRPC defines them. `None`: not a valid timeout, which means no deadline.
fn timeout(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let valid = (1..=8).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
    let count: u64 = digits.parse().ok().filter(|_| valid)?;
    Some(match unit {
        "H" => Duration::from_secs(count * 3600),
        "M" => Duration::from_secs(count * 60),
        "S" => Duration::from_secs(count),
        "m" => Duration::from_millis(count),
        "u" => Duration::from_micros(count),
        "n" => Duration::from_nanos(count),
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
