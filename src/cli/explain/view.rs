//! `credbroker explain` for people.

use std::{
    fmt::Write as _,
    time::{Duration, SystemTime},
};

use credbroker_client::admin::{
    CredentialExplanation, CredentialLifetime, CredentialState, KeyPart, KeyPartKind, KeyPartOrigin,
    LifetimeBound, RunCause,
};

use super::differences::{PartName, by_provider, differing};
use crate::{
    cli::{
        credentials::{described, name, provider, summary},
        screen::{Screen, Tone, wrapped},
        table,
        time::{ahead, expiry, rfc3339, span},
    },
    plugin::Environment,
    text::{one_line, shown},
};

/// The whole text. `own`: the environment of this process, if its values are to be shown.
pub(super) fn text(
    explained: &[CredentialExplanation],
    own: Option<&Environment>,
    screen: Screen,
    now: SystemTime,
) -> String {
    let texts = by_provider(explained).map(|explained| of_provider(explained, own, screen, now));
    texts.collect::<Vec<_>>().join("\n")
}

/// The credentials of one provider: what differs in each of them, and then what is equal in all.
fn of_provider(
    explained: &[CredentialExplanation],
    own: Option<&Environment>,
    screen: Screen,
    now: SystemTime,
) -> String {
    let differing = differing(explained);
    let mut text = String::new();
    for explained in explained {
        let lines = head(explained, now);
        text.extend(lines.iter().map(|line| wrapped(line, 12, screen.width())));
        let rows: Vec<_> = differing.iter().map(|part| differing_row(part, explained, own)).collect();
        if !rows.is_empty() {
            text.push_str(&table(&rows, own, screen));
        }
        text.push('\n');
    }
    let equal = |part: &&KeyPart| !differing.contains(&PartName::of(part));
    let parts = explained.first().map(|first| first.key_parts.as_slice()).unwrap_or_default();
    let rows: Vec<_> = parts.iter().filter(equal).map(|part| row(" ", part, own)).collect();
    let title = match (explained.len(), differing.len()) {
        (1, _) => "The key is made of these parts:".to_owned(),
        (count, 0) => format!("These parts are equal in all {count} keys:"),
        (count, 1) => {
            format!("The keys of these {count} credentials differ in the part marked with *. Equal in all:")
        }
        (count, differing) => {
            format!(
                "The keys of these {count} credentials differ in the {differing} parts marked with *. Equal in all:"
            )
        }
    };
    text.push_str(&wrapped(&title, 0, screen.width()));
    text + &table(&rows, own, screen)
}

/// The credential, its lifetime and its next run.
fn head(explained: &CredentialExplanation, now: SystemTime) -> Vec<String> {
    let state = &explained.state;
    let mut lines = vec![format!("{} {}: {}", provider(state), state.key, name(state.state))];
    let mut add = |label: &str, text: &str| lines.push(format!("  {label:<8}  {text}"));
    if let Some(lifetime) = &explained.lifetime {
        add("lifetime", &self::lifetime(lifetime, state.expires_at, now));
    }
    add("next run", &next_run(explained, now));
    if let Some(failure) = &state.last_failure {
        let attempts = state.failed_attempts;
        add("failure", &described(&format!("{attempts} in a row, the last one"), failure));
    }
    if let Some(rejections) = &state.rejections {
        add("rejected", &summary(rejections, now));
    }
    lines
}

fn lifetime(lifetime: &CredentialLifetime, expires_at: Option<SystemTime>, now: SystemTime) -> String {
    let bound = match lifetime.bound {
        LifetimeBound::ExpirationTimestamp => "the expirationTimestamp that the plugin printed",
        LifetimeBound::CertificateNotAfter => "NotAfter of the client certificate",
        LifetimeBound::TokenExp => "exp of the token, which is a JWT",
        LifetimeBound::MaxAge => "maxAge of the provider",
        LifetimeBound::UnknownExpiryMaxAge => {
            "unknownExpiryMaxAge of the provider, because it names no expiry"
        }
        LifetimeBound::ClockSkew => "it had expired when it arrived; check the clock of this machine",
        _ => "a bound that this release does not know",
    };
    let lasts = lifetime.lifetime.map(|lasts| format!("{}, ", span(lasts))).unwrap_or_default();
    let until = expires_at.map(|at| format!("until {}", expiry(at, now))).unwrap_or_default();
    format!("{lasts}{until}: {bound}")
}

fn next_run(explained: &CredentialExplanation, now: SystemTime) -> String {
    let at = explained
        .next_run_at
        .filter(|at| at.duration_since(now).unwrap_or_default() >= Duration::from_secs(1));
    let when = at.map_or_else(|| "now".to_owned(), |at| expiry_ahead(at, now));
    match explained.next_run {
        RunCause::InProgress => "a run is queued or in progress".to_owned(),
        RunCause::RefreshPoint => format!("{when}: its refresh point"),
        RunCause::SameCredential => {
            format!("{when}: the plugin returned the same credential, and is asked again")
        }
        RunCause::PluginChanged => format!("{when}: the file of the plugin has changed"),
        RunCause::BackOff => format!("{when}: the last run failed, and its back-off ends then"),
        RunCause::IssuerPaused => {
            format!("{when}: the issuer asked for fewer requests, and its pause ends then")
        }
        RunCause::Watched => format!("{when}: it is watched, and there is no valid credential"),
        RunCause::PersonNeeded => format!(
            "with a request at a terminal, or `{}`: the plugin needs a person",
            login(&explained.state)
        ),
        RunCause::LoginNeeded => {
            format!("only with `{}`: no person answered the last prompts", login(&explained.state))
        }
        RunCause::NotInUse if at.is_some() => {
            format!("with the first request after {when}: it will not be in use then")
        }
        RunCause::NotInUse => "with the next request: it is not in use".to_owned(),
        RunCause::NextRequest if at.is_some() => {
            format!("with the first request after {when}: until then callers get the last failure")
        }
        RunCause::NextRequest => "with the next request: there is no valid credential".to_owned(),
        _ => format!("{when}: a cause that this release does not know"),
    }
}

/// `2026-11-20T10:00:00Z (in 42m)`.
fn expiry_ahead(at: SystemTime, now: SystemTime) -> String {
    format!("{} ({})", rfc3339(at), ahead(at, now, "now"))
}

/// The command with which a person logs in.
fn login(state: &CredentialState) -> String {
    match &state.cluster_profile {
        Some(profile) => one_line(&format!("credbroker login --cluster-profile {profile}")),
        None => format!("credbroker login {}", shown(&state.provider)),
    }
}

/// A row of the table: the part, its origin, its fingerprint, and the value in this process.
type Cells = [String; 4];

fn differing_row(part: &PartName<'_>, explained: &CredentialExplanation, own: Option<&Environment>) -> Cells {
    let found = explained.key_parts.iter().find(|found| PartName::of(found) == *part);
    found.map_or_else(
        || [format!("* {}", label(part, None)), "-".to_owned(), "absent".to_owned(), own_value(part, own)],
        |found| row("*", found, own),
    )
}

fn row(mark: &str, part: &KeyPart, own: Option<&Environment>) -> Cells {
    let origin = match part.origin {
        KeyPartOrigin::Stanza => "stanza",
        KeyPartOrigin::Always => "broker (always)",
        KeyPartOrigin::PassEnv => "broker (passEnv)",
        KeyPartOrigin::CallerEnv => "caller (callerEnv)",
        KeyPartOrigin::Caller => "caller",
        KeyPartOrigin::ClusterProfile => "ClusterProfile",
        KeyPartOrigin::Kubeconfig => "kubeconfig",
        _ => "unknown",
    };
    let part_name = PartName::of(part);
    let label = label(&part_name, part.value.as_deref());
    [format!("{mark} {label}"), origin.to_owned(), one_line(&part.fingerprint), own_value(&part_name, own)]
}

fn label(part: &PartName<'_>, value: Option<&str>) -> String {
    let kind = match part.kind {
        KeyPartKind::Provider => "provider",
        KeyPartKind::Definition => "definition",
        KeyPartKind::Command => "command",
        KeyPartKind::ApiVersion => "apiVersion",
        KeyPartKind::ProvideClusterInfo => "provideClusterInfo",
        KeyPartKind::Argument => "argument",
        KeyPartKind::Variable => "variable",
        KeyPartKind::ClusterProfile => "ClusterProfile",
        KeyPartKind::Cluster => "cluster",
        _ => "unknown part",
    };
    let mut label = kind.to_owned();
    for text in [part.name, value.unwrap_or_default()].into_iter().filter(|text| !text.is_empty()) {
        let _infallible = write!(label, " {}", shown(text));
    }
    label
}

fn own_value(part: &PartName<'_>, own: Option<&Environment>) -> String {
    match own.filter(|_| part.kind == KeyPartKind::Variable) {
        Some(own) => own.get(part.name).map_or("unset".to_owned(), |value| shown(&value.to_string_lossy())),
        None => String::new(),
    }
}

fn table(rows: &[Cells], own: Option<&Environment>, screen: Screen) -> String {
    let rows: Vec<_> = rows.iter().map(|cells| (Tone::Plain, cells.clone())).collect();
    let here = if own.is_some() { "HERE" } else { "" };
    table::fitted(["  PART", "FROM", "FINGERPRINT", here], &rows, (1, &[2]), screen)
}

#[cfg(test)]
pub(super) mod tests;
