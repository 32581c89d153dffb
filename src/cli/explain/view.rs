//! `credbroker explain` for people.

mod rows;

use std::time::{Duration, SystemTime};

use credbroker_client::admin::{
    CredentialExplanation, CredentialLifetime, CredentialState, KeyPart, LifetimeBound, RunCause,
};

use self::rows::{differing_row, row, table};
use super::differences::{PartName, by_provider, differing};
use crate::cli::{
    credentials::{described, name, provider, summary},
    screen::Screen,
    time::{ahead, expiry, rfc3339, span},
    wrapped::wrapped,
};
use credbroker_credential::text::{one_line, shown};
use credbroker_plugin::Environment;

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
        RunCause::RefreshPoint => format!("{when}: the credential is due for renewal"),
        RunCause::SameCredential => {
            format!("{when}: the plugin returned the same credential, and is asked again")
        }
        RunCause::PluginChanged => format!("{when}: the file of the plugin has changed"),
        RunCause::BackOff => format!("{when}: the last run failed, and the back-off ends then"),
        RunCause::IssuerPaused => {
            format!("{when}: the issuer asked for fewer requests, and its pause ends then")
        }
        RunCause::Watched => format!("{when}: it is watched and has no valid credential"),
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
        RunCause::NextRequest => "with the next request: it has no valid credential".to_owned(),
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

#[cfg(test)]
pub(super) mod tests;
