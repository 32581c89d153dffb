//! The names of what is explained, for programs.

use credbroker_client::admin::{KeyPartKind, KeyPartOrigin, LifetimeBound, RunCause};

pub(super) fn kind(kind: KeyPartKind) -> &'static str {
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

pub(super) fn origin(origin: KeyPartOrigin) -> &'static str {
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

pub(super) fn cause(cause: RunCause) -> &'static str {
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

pub(super) fn bound(bound: LifetimeBound) -> &'static str {
    match bound {
        LifetimeBound::ExpirationTimestamp => "expirationTimestamp",
        LifetimeBound::CertificateNotAfter => "certificateNotAfter",
        LifetimeBound::TokenExp => "tokenExp",
        LifetimeBound::MaxAge => "maxAge",
        LifetimeBound::UnknownExpiryMaxAge => "unknownExpiryMaxAge",
        LifetimeBound::ClockSkew => "clockSkew",
        _ => "unknown",
    }
}
