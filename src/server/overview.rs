//! What the broker holds, on the wire.

use credbroker_proto::v1::{CredentialState, credential_state};

use super::{convert, status};
use crate::{
    cache::{Held, Holding},
    text::chain,
    verify::Verdict,
};

/// One key, without its credential.
pub(super) fn state(held: &Held) -> CredentialState {
    let spec = &held.spec;
    let (issued, next_refresh) = held.valid.as_ref().map(|(issued, due)| (issued, *due)).unzip();
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
        next_refresh: next_refresh.and_then(convert::timestamp),
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
