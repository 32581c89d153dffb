//! Messages that describe the broker's credentials and providers.

use credbroker_proto::v1::{CredentialState, Failure, ProviderState, credential_state};
use tonic::Status;

use super::{
    convert,
    paging::{self, Paging},
    status,
};
use credbroker_cache::{CredentialCache, Holding, KeyStatus, ListPosition, Selector, Verdict};
use credbroker_credential::{LifetimeBound, text::chain};
use credbroker_plugin::{
    PluginKey, PluginSpec, Provider, Providers,
    access::{CallTarget, Rights, Verb},
};
use credbroker_runner::PluginRunner;

/// Bytes of one page. Many clients limit a message to 4 MiB, and a key that fails has an error message of 2 KiB.
pub(super) const PAGE: usize = 1 << 20;
/// Number of keys that are read from the cache at a time.
const BATCH: usize = 512;

/// The page of credentials that follows the one with `page_token`, with its own token. `row` makes the message of one key.
pub(super) fn page<R: PluginRunner>(
    cache: &CredentialCache<R>,
    selector: &Selector,
    rights: &Rights,
    (page_size, page_token): (i32, &str),
    mut row: impl FnMut(&KeyStatus) -> CredentialState,
) -> Result<(Vec<CredentialState>, String), Status> {
    let (paging, after) = Paging::read("credentials", &format!("{selector:?}"), PAGE, page_size, page_token)?;
    let mut after = match after {
        None => None,
        Some(position) => Some(read(position).ok_or_else(paging::foreign)?),
    };
    let batches = std::iter::from_fn(|| {
        let batch = cache.list(selector, after.as_ref(), BATCH);
        after = Some(batch.last()?.position());
        Some(batch)
    });
    let shown = batches.flatten().filter(|held| is_about(rights, Verb::List, &held.spec));
    let rows = shown.map(|held| (row(&held), held.position()));
    Ok(paging.fill(rows, position))
}

/// Whether `rights` allow `verb` for the credential of `spec`.
pub(super) fn is_about(rights: &Rights, verb: Verb, spec: &PluginSpec) -> bool {
    let provider = &spec.provider.name;
    match spec.target.as_ref().map(|target| &target.profile) {
        None => rights.allows(verb, CallTarget::Provider(provider)),
        Some(profile) => {
            rights.allows(verb, CallTarget::Profile(profile, Some(provider)))
                || rights.allows(verb, CallTarget::Through(provider, profile))
        }
    }
}

/// Writes a position for a page token, with the whole key.
fn position((provider, key): &ListPosition) -> String {
    let key: Vec<_> = key.0.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{}/{provider}", key.concat())
}

/// Reads what [`position`] writes.
fn read(position: &str) -> Option<ListPosition> {
    let (key, provider) = position.split_once('/')?;
    let mut bytes = [0; 32];
    if !key.is_ascii() || key.len() != 2 * bytes.len() {
        return None;
    }
    for (byte, digits) in bytes.iter_mut().zip(key.as_bytes().chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    }
    Some((provider.into(), PluginKey(bytes)))
}

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
        expiration_time: issued.and_then(|issued| convert::timestamp(issued.expires_at)),
        next_refresh_time: held.next_refresh.and_then(convert::timestamp),
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
            next_run_time: known.next_run.and_then(convert::timestamp),
        }),
        fetch_time: issued.and_then(|issued| convert::timestamp(issued.fetched.wall)),
        bound: issued.map(|issued| bound(issued.bound).into()),
        next_run_cause: cause.into(),
        next_run_time: next_run.and_then(convert::timestamp),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_is_read_as_it_is_written_and_others_are_refused() {
        for provider in ["gke", "a/b", ""] {
            let place: ListPosition = (provider.into(), PluginKey([0xa7; 32]));
            assert_eq!(read(&position(&place)), Some(place));
        }
        let zeros = "0".repeat(64);
        for token in [
            "gke",
            "/gke",
            "00/gke",
            &zeros,
            &format!("{}é/gke", "0".repeat(62)),
            &format!("{}g/x", &zeros[1..]),
        ] {
            assert_eq!(read(token), None, "{token}");
        }
    }
}
