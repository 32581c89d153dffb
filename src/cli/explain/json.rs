//! `credbroker explain -o json`.

use credbroker_client::admin::{
    CredentialExplanation, CredentialLifetime, KeyPart, KeyPartKind, KeyPartOrigin, LifetimeBound, RunCause,
};
use serde_json::{Value, json};

use super::differences::{PartName, by_provider, differing};
use crate::{
    cli::{credentials::state_json, time::rfc3339},
    plugin::Environment,
};

/// `own`: the environment of this process, if its values are to be shown.
pub(super) fn document(explained: &[CredentialExplanation], own: Option<&Environment>) -> Value {
    let credentials = by_provider(explained).flat_map(|explained| {
        let differing = differing(explained);
        let one = move |explained: &CredentialExplanation| {
            let CredentialExplanation { state, key_parts, lifetime, next_run, next_run_at, .. } = explained;
            let parts =
                key_parts.iter().map(|part| key_part(part, differing.contains(&PartName::of(part)), own));
            let more = json!({
                "keyParts": parts.collect::<Vec<_>>(),
                "lifetime": lifetime.as_ref().map(self::lifetime),
                "nextRun": {"cause": cause(*next_run), "time": next_run_at.map(rfc3339)},
            });
            with(state_json(state), more)
        };
        explained.iter().map(one).collect::<Vec<_>>()
    });
    json!({"credentials": credentials.collect::<Vec<_>>()})
}

fn key_part(part: &KeyPart, differs: bool, own: Option<&Environment>) -> Value {
    let KeyPart { kind, name, origin, fingerprint, value, .. } = part;
    let document = json!({
        "kind": self::kind(*kind),
        "name": name,
        "origin": self::origin(*origin),
        "fingerprint": fingerprint,
        "value": value,
        "differs": differs,
    });
    match own.filter(|_| *kind == KeyPartKind::Variable) {
        Some(own) => with(document, json!({"ownValue": own.get(name).map(|value| value.to_string_lossy())})),
        None => document,
    }
}

/// `document` with the fields of `more`.
fn with(mut document: Value, more: Value) -> Value {
    if let (Value::Object(document), Value::Object(more)) = (&mut document, more) {
        document.extend(more);
    }
    document
}

fn lifetime(lifetime: &CredentialLifetime) -> Value {
    json!({
        "fetchTime": lifetime.fetched_at.map(rfc3339),
        "seconds": lifetime.lifetime.map(|lifetime| lifetime.as_secs()),
        "bound": match lifetime.bound {
            LifetimeBound::ExpirationTimestamp => "expirationTimestamp",
            LifetimeBound::CertificateNotAfter => "certificateNotAfter",
            LifetimeBound::TokenExp => "tokenExp",
            LifetimeBound::MaxAge => "maxAge",
            LifetimeBound::UnknownExpiryMaxAge => "unknownExpiryMaxAge",
            LifetimeBound::ClockSkew => "clockSkew",
            _ => "unknown",
        },
    })
}

fn kind(kind: KeyPartKind) -> &'static str {
    match kind {
        KeyPartKind::Provider => "provider",
        KeyPartKind::Definition => "definition",
        KeyPartKind::Command => "command",
        KeyPartKind::ApiVersion => "apiVersion",
        KeyPartKind::ProvideClusterInfo => "provideClusterInfo",
        KeyPartKind::Argument => "argument",
        KeyPartKind::Variable => "variable",
        KeyPartKind::ClusterProfile => "clusterProfile",
        KeyPartKind::Cluster => "cluster",
        _ => "unknown",
    }
}

fn origin(origin: KeyPartOrigin) -> &'static str {
    match origin {
        KeyPartOrigin::Stanza => "stanza",
        KeyPartOrigin::Always => "always",
        KeyPartOrigin::PassEnv => "passEnv",
        KeyPartOrigin::CallerEnv => "callerEnv",
        KeyPartOrigin::Caller => "caller",
        KeyPartOrigin::ClusterProfile => "clusterProfile",
        KeyPartOrigin::Kubeconfig => "kubeconfig",
        _ => "unknown",
    }
}

fn cause(cause: RunCause) -> &'static str {
    match cause {
        RunCause::InProgress => "inProgress",
        RunCause::RefreshPoint => "refreshPoint",
        RunCause::SameCredential => "sameCredential",
        RunCause::PluginChanged => "pluginChanged",
        RunCause::BackOff => "backOff",
        RunCause::IssuerPaused => "issuerPaused",
        RunCause::Watched => "watched",
        RunCause::PersonNeeded => "personNeeded",
        RunCause::LoginNeeded => "loginNeeded",
        RunCause::NotInUse => "notInUse",
        RunCause::NextRequest => "nextRequest",
        _ => "unknown",
    }
}
