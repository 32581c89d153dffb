//! Why a credential in the broker's cache is as it is.

use std::time::{Duration, SystemTime};

use credbroker_proto::v1::{self, credential_lifetime, next_run};

use super::{
    key_part::KeyPart,
    state::{CredentialState, time},
};

/// Why a credential is as it is. It holds no secret.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct CredentialExplanation {
    /// Its state.
    pub state: CredentialState,
    /// Everything that its key is made of.
    pub key_parts: Vec<KeyPart>,
    /// How long it is served. `None`: it has no valid credential.
    pub lifetime: Option<CredentialLifetime>,
    /// Why the plugin runs next, or does not.
    pub next_run: RunCause,
    /// No run starts before this time, except for a rejection or when a person asks for one. `None`: `next_run` does not
    /// wait for a time.
    pub next_run_at: Option<SystemTime>,
}

/// How long a credential is served, and why not longer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct CredentialLifetime {
    /// When the broker received the credential.
    pub fetched_at: Option<SystemTime>,
    /// From then to the expiry.
    pub lifetime: Option<Duration>,
    /// The earliest of all bounds.
    pub bound: LifetimeBound,
}

/// What bounds a lifetime.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum LifetimeBound {
    /// The `expirationTimestamp` that the plugin printed.
    ExpirationTimestamp,
    /// The `NotAfter` of the client certificate.
    CertificateNotAfter,
    /// The `exp` claim of the token.
    TokenExp,
    /// The provider's `maxAge`.
    MaxAge,
    /// The provider's `unknownExpiryMaxAge`: the credential names no expiry.
    UnknownExpiryMaxAge,
    /// It had expired when it arrived, by less than clocks may differ.
    ClockSkew,
    /// A bound that this release does not know.
    Unknown,
}

/// Why a plugin runs at a time, or does not run.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum RunCause {
    /// A run is queued or in progress.
    InProgress,
    /// The credential is in use, and due at its refresh point.
    RefreshPoint,
    /// The last run returned the same credential, so the plugin is asked again later.
    SameCredential,
    /// The credential is in use, and the file of the plugin has changed.
    PluginChanged,
    /// The last run failed.
    BackOff,
    /// The issuer asked for fewer requests.
    IssuerPaused,
    /// It is watched and has no valid credential.
    Watched,
    /// The plugin reads from a terminal, or a run without a person has failed: a request at a terminal or a login starts
    /// the next one.
    PersonNeeded,
    /// Prompts were not answered: only a login starts the next one.
    LoginNeeded,
    /// It is valid and will not be in use at that time: the first request after it starts a run.
    NotInUse,
    /// It has no valid credential: the first request after that time starts a run.
    NextRequest,
    /// A cause that this release does not know.
    Unknown,
}

impl CredentialExplanation {
    pub(crate) fn from_message(message: v1::CredentialExplanation) -> Self {
        let v1::CredentialExplanation { state, key_parts, lifetime, next_run } = message;
        let next_run = next_run.unwrap_or_default();
        Self {
            state: CredentialState::from_message(state.unwrap_or_default()),
            key_parts: key_parts.into_iter().map(KeyPart::from_message).collect(),
            lifetime: lifetime.map(CredentialLifetime::from_message),
            next_run: RunCause::from_message(next_run.cause()),
            next_run_at: time(next_run.time),
        }
    }
}

impl CredentialLifetime {
    fn from_message(message: v1::CredentialLifetime) -> Self {
        use credential_lifetime::Bound;
        let bound = match message.bound() {
            Bound::Unspecified => LifetimeBound::Unknown,
            Bound::ExpirationTimestamp => LifetimeBound::ExpirationTimestamp,
            Bound::CertificateNotAfter => LifetimeBound::CertificateNotAfter,
            Bound::TokenExp => LifetimeBound::TokenExp,
            Bound::MaxAge => LifetimeBound::MaxAge,
            Bound::UnknownExpiryMaxAge => LifetimeBound::UnknownExpiryMaxAge,
            Bound::ClockSkew => LifetimeBound::ClockSkew,
        };
        let v1::CredentialLifetime { fetch_time, lifetime, bound: _ } = message;
        let lifetime = lifetime.and_then(|lifetime| Duration::try_from(lifetime).ok());
        Self { fetched_at: time(fetch_time), lifetime, bound }
    }
}

impl RunCause {
    fn from_message(cause: next_run::Cause) -> Self {
        match cause {
            next_run::Cause::Unspecified => Self::Unknown,
            next_run::Cause::InProgress => Self::InProgress,
            next_run::Cause::RefreshPoint => Self::RefreshPoint,
            next_run::Cause::SameCredential => Self::SameCredential,
            next_run::Cause::PluginChanged => Self::PluginChanged,
            next_run::Cause::BackOff => Self::BackOff,
            next_run::Cause::IssuerPaused => Self::IssuerPaused,
            next_run::Cause::Watched => Self::Watched,
            next_run::Cause::PersonNeeded => Self::PersonNeeded,
            next_run::Cause::LoginNeeded => Self::LoginNeeded,
            next_run::Cause::NotInUse => Self::NotInUse,
            next_run::Cause::NextRequest => Self::NextRequest,
        }
    }
}
