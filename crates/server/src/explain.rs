//! Messages that explain credentials: what their keys are made of, what bounds their lifetime, and when the plugin runs next.

use std::{
    fmt::{self, Write as _},
    sync::OnceLock,
};

use aws_lc_rs::{
    hmac::{self, HMAC_SHA256},
    rand::SystemRandom,
};
use credbroker_proto::v1::{self as pb, credential_lifetime, key_part, next_run};
use tonic::Status;

use super::{convert, overview::state, status};
use credbroker_cache::{KeyStatus, RunCause};
use credbroker_credential::{Issued, LifetimeBound};
use credbroker_plugin::{KeyPart, PartKind, PartOrigin, Providers};

/// Bytes of a fingerprint that are sent: two values of one part have the same one by chance once in 2^64.
const SENT: usize = 8;

/// Keyed hashes of values. The key is random for each start of the broker and never leaves it, so that a fingerprint cannot
/// be compared with those of guessed values.
#[derive(Default)]
pub(super) struct Fingerprints(OnceLock<hmac::Key>);

impl Fingerprints {
    /// The key, made when it is first needed.
    ///
    /// # Errors
    ///
    /// The kernel has no random bytes.
    pub(super) fn key(&self) -> Result<&hmac::Key, Status> {
        if let Some(key) = self.0.get() {
            return Ok(key);
        }
        let made = hmac::Key::generate(HMAC_SHA256, &SystemRandom::new());
        let made = made.map_err(|_unspecified| status::defect())?;
        Ok(self.0.get_or_init(|| made))
    }
}

impl fmt::Debug for Fingerprints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Fingerprints")
    }
}

/// Explains `held`.
pub(super) fn explanation(
    held: &KeyStatus,
    providers: &Providers,
    key: &hmac::Key,
) -> pb::CredentialExplanation {
    let spec = &held.spec;
    // A ClusterProfile adds to a provider of the configuration. If that has changed, the credential is about to go.
    let configured = spec.target.as_ref().and_then(|_| providers.configured(&spec.provider.name).ok());
    let configured = configured.map_or(&spec.provider, |entry| &entry.provider);
    pb::CredentialExplanation {
        state: Some(state(held)),
        key_parts: spec.key_parts(configured).iter().map(|part| key_part(part, key)).collect(),
        lifetime: held.issued.as_deref().map(lifetime),
        next_run: Some(next_run(held.next_run)),
    }
}

fn key_part(part: &KeyPart<'_>, key: &hmac::Key) -> pb::KeyPart {
    let KeyPart { kind, name, origin, value } = part;
    let kind_of = match kind {
        PartKind::Provider => key_part::Kind::Provider,
        PartKind::Definition => key_part::Kind::Definition,
        PartKind::Command => key_part::Kind::Command,
        PartKind::ApiVersion => key_part::Kind::ApiVersion,
        PartKind::ProvideClusterInfo => key_part::Kind::ProvideClusterInfo,
        PartKind::Argument => key_part::Kind::Argument,
        PartKind::Variable => key_part::Kind::Variable,
        PartKind::ClusterProfile => key_part::Kind::ClusterProfile,
        PartKind::Cluster => key_part::Kind::Cluster,
    };
    let origin = match origin {
        PartOrigin::Stanza => key_part::Origin::Stanza,
        PartOrigin::Always => key_part::Origin::Always,
        PartOrigin::PassEnv => key_part::Origin::PassEnv,
        PartOrigin::CallerEnv => key_part::Origin::CallerEnv,
        PartOrigin::Caller => key_part::Origin::Caller,
        PartOrigin::ClusterProfile => key_part::Origin::ClusterProfile,
        PartOrigin::Kubeconfig => key_part::Origin::Kubeconfig,
    };
    pb::KeyPart {
        kind: kind_of.into(),
        name: name.to_string(),
        origin: origin.into(),
        fingerprint: fingerprint(part, key),
        value: kind.is_shown().then(|| String::from_utf8_lossy(value).into_owned()),
    }
}

/// The fingerprint of a value. It covers kind and name, so that it does not show whether two variables have one value.
fn fingerprint(part: &KeyPart<'_>, key: &hmac::Key) -> String {
    let mut context = hmac::Context::with_key(key);
    context.update(format!("{:?}\0{}\0", part.kind, part.name).as_bytes());
    context.update(&part.value);
    let mut text = String::with_capacity(2 * SENT);
    for byte in context.sign().as_ref().iter().take(SENT) {
        let _infallible = write!(text, "{byte:02x}");
    }
    text
}

fn lifetime(issued: &Issued) -> pb::CredentialLifetime {
    let bound = match issued.bound {
        LifetimeBound::ExpirationTimestamp => credential_lifetime::Bound::ExpirationTimestamp,
        LifetimeBound::NotAfter => credential_lifetime::Bound::CertificateNotAfter,
        LifetimeBound::TokenExp => credential_lifetime::Bound::TokenExp,
        LifetimeBound::MaxAge => credential_lifetime::Bound::MaxAge,
        LifetimeBound::UnknownExpiry => credential_lifetime::Bound::UnknownExpiryMaxAge,
        LifetimeBound::ClockSkew => credential_lifetime::Bound::ClockSkew,
    };
    pb::CredentialLifetime {
        fetch_time: convert::timestamp(issued.fetched.wall),
        lifetime: convert::duration(issued.lifetime),
        bound: bound.into(),
    }
}

fn next_run((cause, time): (RunCause, Option<std::time::SystemTime>)) -> pb::NextRun {
    let cause = match cause {
        RunCause::InProgress => next_run::Cause::InProgress,
        RunCause::RefreshPoint => next_run::Cause::RefreshPoint,
        RunCause::SameCredential => next_run::Cause::SameCredential,
        RunCause::PluginChanged => next_run::Cause::PluginChanged,
        RunCause::BackOff => next_run::Cause::BackOff,
        RunCause::IssuerPaused => next_run::Cause::IssuerPaused,
        RunCause::Watched => next_run::Cause::Watched,
        RunCause::PersonNeeded => next_run::Cause::PersonNeeded,
        RunCause::LoginNeeded => next_run::Cause::LoginNeeded,
        RunCause::NotInUse => next_run::Cause::NotInUse,
        RunCause::NextRequest => next_run::Cause::NextRequest,
    };
    pb::NextRun { cause: cause.into(), time: time.and_then(convert::timestamp) }
}

#[cfg(test)]
mod tests;
