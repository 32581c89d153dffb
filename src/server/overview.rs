//! What the broker holds, on the wire.

use credbroker_proto::v1::{CredentialState, credential_state};
use prost::Message as _;
use tonic::Status;

use super::{convert, status};
use crate::{
    cache::{CredentialCache, Holding, KeyStatus, Position, Selector},
    exec::PluginRunner,
    plugin::PluginKey,
    text::chain,
    verify::Verdict,
};

/// Bytes of credentials in one page: the limit of many clients is 4 MiB, and a key that fails has a message of 2 KiB.
const PAGE: usize = 1 << 20;
/// How many are taken from the cache at a time.
const BATCH: usize = 512;

/// The page of the selected keys that follows the one with this `next_page_token`, and its own.
pub(super) fn page<R: PluginRunner>(
    cache: &CredentialCache<R>,
    selector: &Selector,
    token: &str,
) -> Result<(Vec<CredentialState>, String), Status> {
    let mut after = match token {
        "" => None,
        token => Some(read(token).ok_or_else(|| {
            status::invalid("`page_token` is not the `next_page_token` of a page of credentials")
        })?),
    };
    let batches = std::iter::from_fn(|| {
        let batch = cache.list(selector, after.as_ref(), BATCH);
        after = Some(batch.last()?.position());
        Some(batch)
    });
    Ok(fill(batches.flatten().map(|held| (state(&held), held.position()))))
}

/// As many rows as fit, and the position of the last one if there are more. A row that is larger than a page is one.
fn fill(rows: impl Iterator<Item = (CredentialState, Position)>) -> (Vec<CredentialState>, String) {
    let (mut page, mut size, mut last) = (Vec::new(), 0, None::<Position>);
    for (state, at) in rows {
        size += state.encoded_len();
        if size > PAGE
            && let Some(last) = last
        {
            return (page, token_of(&last));
        }
        page.push(state);
        last = Some(at);
    }
    (page, String::new())
}

/// The page token. It has the whole key, which is shown by its first bytes elsewhere.
fn token_of((provider, key): &Position) -> String {
    let key: Vec<_> = key.0.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{}/{provider}", key.concat())
}

/// The place that a page token has, if it is one.
fn read(token: &str) -> Option<Position> {
    let (key, provider) = token.split_once('/')?;
    let mut bytes = [0; 32];
    if !key.is_ascii() || key.len() != 2 * bytes.len() {
        return None;
    }
    for (byte, digits) in bytes.iter_mut().zip(key.as_bytes().chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    }
    Some((provider.into(), PluginKey(bytes)))
}

/// One key, without its credential.
pub(super) fn state(held: &KeyStatus) -> CredentialState {
    let spec = &held.spec;
    let issued = held.issued.as_ref();
    CredentialState {
        provider: spec.provider.name.to_string(),
        key: spec.key.to_string(),
        server: spec.endpoint().map(|cluster| cluster.server.clone()).unwrap_or_default(),
        caller_env: spec.caller_env.keys().cloned().collect(),
        state: match held.holding {
            Holding::Valid => credential_state::State::Valid,
            Holding::Renewing => credential_state::State::Renewing,
            Holding::Waiting => credential_state::State::Waiting,
            Holding::Failed => credential_state::State::Failed,
            Holding::Empty => credential_state::State::Empty,
        }
        .into(),
        generation: issued.map(|issued| issued.generation.to_string()).unwrap_or_default(),
        expiration_timestamp: issued.and_then(|issued| convert::timestamp(issued.expires_at)),
        next_refresh: held.next_refresh.and_then(convert::timestamp),
        watchers: u32::try_from(held.watchers).unwrap_or(u32::MAX),
        runs: held.runs,
        last_failure: held.failure.as_ref().map(|(failed, attempts)| credential_state::Failure {
            reason: status::cache_reason(&failed.error).name().to_owned(),
            message: chain(&failed.error),
            attempts: *attempts,
            retry_after: convert::duration(failed.retry_after),
        }),
        cluster_profile: spec.target.as_ref().map(|target| convert::profile(&target.profile)),
        rejections: held.rejections.as_ref().map(|known| credential_state::Rejections {
            rejections: known.count,
            verifications: known.verifications,
            last_verdict: match known.verdict {
                None => credential_state::Verdict::Unspecified,
                Some(Verdict::Rejected) => credential_state::Verdict::Rejected,
                Some(Verdict::Accepted) => credential_state::Verdict::Accepted,
                Some(Verdict::Unverifiable) => credential_state::Verdict::Unverifiable,
            }
            .into(),
            next_run_time: known.next_run.and_then(convert::timestamp),
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    type Rows = BTreeMap<Position, CredentialState>;

    /// 3,000 keys of three providers, each with a message of 2 KiB.
    fn failing() -> Rows {
        let row = |number: u32| {
            let mut key = [0; 32];
            // Keys that are shown alike.
            key.iter_mut().rev().zip(number.to_le_bytes()).for_each(|(byte, value)| *byte = value);
            let provider = ["aws", "azure/eu", "gke"][number as usize % 3];
            let failure = credential_state::Failure { message: "x".repeat(2048), ..Default::default() };
            let state = CredentialState {
                provider: provider.to_owned(),
                key: number.to_string(),
                last_failure: Some(failure),
                ..CredentialState::default()
            };
            ((provider.into(), PluginKey(key)), state)
        };
        (0..3_000).map(row).collect()
    }

    #[test]
    fn pages_fit_into_a_message_and_have_each_row_once() {
        let rows = failing();
        let whole: usize = rows.values().map(CredentialState::encoded_len).sum();
        assert!(whole > 4 << 20, "as one message it is too large for most clients");
        let (mut all, mut after, mut pages) = (Vec::new(), None, 0);
        loop {
            let rest = rows.iter().filter(|(at, _)| after.as_ref().is_none_or(|after| *at > after));
            let (page, token) = fill(rest.map(|(at, state)| (state.clone(), at.clone())));
            let size: usize = page.iter().map(CredentialState::encoded_len).sum();
            assert!(size <= PAGE && !page.is_empty(), "{size}");
            (all, pages) = ([all, page].concat(), pages + 1);
            if token.is_empty() {
                break;
            }
            after = Some(read(&token).unwrap());
        }
        assert_eq!(pages, whole.div_ceil(PAGE));
        assert_eq!(all, rows.into_values().collect::<Vec<_>>());
    }

    #[test]
    fn a_row_that_is_larger_than_a_page_is_a_page() {
        let large = CredentialState { provider: "x".repeat(2 * PAGE), ..CredentialState::default() };
        let at = |byte| ("p".into(), PluginKey([byte; 32]));
        let (page, token) = fill([(large.clone(), at(1)), (large, at(2))].into_iter());
        assert_eq!((page.len(), read(&token)), (1, Some(at(1))));
        assert_eq!(fill(std::iter::empty()), (vec![], String::new()));
    }

    #[test]
    fn a_token_is_read_as_it_is_written_and_others_are_refused() {
        for provider in ["gke", "a/b", ""] {
            let place: Position = (provider.into(), PluginKey([0xa7; 32]));
            assert_eq!(read(&token_of(&place)), Some(place));
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
