//! How commands print the credentials that a broker holds.

use std::{
    fmt::Write as _,
    io,
    time::{Duration, SystemTime},
};

use credbroker_client::{
    Failure,
    admin::{CredentialState, ProviderState, Rejections, State},
};
use serde_json::{Value, json};

use super::{
    broker::{failure_json, name, profile_json, reason},
    console::{Console, OutputFormat},
    screen::{Screen, Tone, ahead, counted, dated, fitted, rfc3339, wrapped},
};
use credbroker_credential::text::one_line;
use credbroker_observe::clock::{Clock as _, SystemClock};

/// Prints `states` without secrets.
pub(super) fn print(
    states: &[CredentialState],
    format: OutputFormat,
    console: &mut Console<'_>,
) -> io::Result<()> {
    let (now, screen) = (SystemClock.now().wall, Screen::of_stdout(console.environment));
    let rows = || states.iter().map(|held| CredentialRow::of(held, now)).collect::<Vec<_>>();
    let document = || json!({ "credentials": states.iter().map(state_json).collect::<Vec<_>>() });
    console.print(format, || table(&rows(), screen), document)
}

/// A row of the table: a credential, or a provider without one.
#[derive(Debug)]
pub(super) struct CredentialRow {
    tone: Tone,
    cells: [String; 7],
    /// Lines below the table.
    notes: Vec<String>,
}

const HEAD: [&str; 7] = ["PROVIDER", "STATE", "EXPIRES", "NEXT RUN", "RUNS", "WATCHES", "KEY"];
/// The column of the state, and those that a narrow terminal leaves out.
const LAYOUT: (usize, &[usize]) = (1, &[5, 4, 6, 3]);

impl CredentialRow {
    /// A credential in the cache.
    pub(super) fn of(held: &CredentialState, now: SystemTime) -> Self {
        let time =
            |at: Option<SystemTime>, past| at.map_or_else(|| "-".to_owned(), |at| ahead(at, now, past));
        let tone = match held.state {
            State::Failed => Tone::Bad,
            State::Valid => Tone::Good,
            State::Renewing | State::Waiting => Tone::Pending,
            _ => Tone::Plain,
        };
        let failure = held.last_failure.as_ref().map(|failure| described(&provider(held), failure));
        let summary = |rejections| format!("{} {}: {}", provider(held), held.key, summary(rejections, now));
        let rejections = held.rejections.as_ref().map(summary);
        let cells = [
            provider(held),
            name(held.state),
            time(held.expires_at, "expired"),
            time(held.next_refresh, "now"),
            held.runs.to_string(),
            held.watchers.to_string(),
            held.key.clone(),
        ];
        Self { tone, cells, notes: failure.into_iter().chain(rejections).collect() }
    }

    /// A provider without a credential.
    pub(super) fn idle(provider: &ProviderState) -> Self {
        let (tone, state) = match &provider.failure {
            None => (Tone::Faint, "idle"),
            Some(_) => (Tone::Bad, "unusable"),
        };
        let name = one_line(&provider.name);
        let notes = provider.failure.iter().map(|failure| described(&name, failure)).collect();
        let cells = [&name, state, "-", "-", "0", "0", "-"].map(str::to_owned);
        Self { tone, cells, notes }
    }
}

pub(super) fn described(name: &str, failure: &Failure) -> String {
    format!("{name}: {}: {}", reason(failure), one_line(&failure.message))
}

/// `rows` and what there is to say about them, in the width of `screen`.
pub(super) fn table(rows: &[CredentialRow], screen: Screen) -> String {
    let cells: Vec<_> = rows.iter().map(|row| (row.tone, row.cells.clone())).collect();
    let mut text = fitted(HEAD, &cells, LAYOUT, screen);
    let notes: String =
        rows.iter().flat_map(|row| &row.notes).map(|note| wrapped(note, 2, screen.width())).collect();
    if !notes.is_empty() {
        text.push('\n');
        text.push_str(&notes);
    }
    text
}

/// `3 rejections, 2 verifications, the last: accepted; the next run for a rejection not before …`.
pub(super) fn summary(rejections: &Rejections, now: SystemTime) -> String {
    let mut text = counted(rejections.rejections, "rejection");
    if let Some(last) = rejections.last_verdict {
        let verifications = counted(rejections.verifications, "verification");
        let _infallible = write!(text, ", {verifications}, the last: {}", name(last));
    }
    if let Some(at) = rejections.next_run {
        let _infallible =
            write!(text, "; the next run for a rejection not before {}", dated(at, now, "expired"));
    }
    text
}

/// `gke`, or `gke (fleet/paris)` for a ClusterProfile.
pub(super) fn provider(held: &CredentialState) -> String {
    match &held.cluster_profile {
        Some(profile) => one_line(&format!("{} ({}/{})", held.provider, profile.namespace, profile.name)),
        None => one_line(&held.provider),
    }
}

/// A credential for programs.
pub(super) fn state_json(held: &CredentialState) -> Value {
    json!({
        "provider": held.provider,
        "definition": held.definition,
        "clusterProfile": held.cluster_profile.as_ref().map(profile_json),
        "key": held.key,
        "server": held.server,
        "callerEnv": held.caller_env,
        "state": name(held.state),
        "generation": held.generation,
        "expirationTime": held.expires_at.map(rfc3339),
        "nextRefreshTime": held.next_refresh.map(rfc3339),
        "watchers": held.watchers,
        "runs": held.runs,
        "lastFailure": held.last_failure.as_ref().map(failure_json),
        "failedAttempts": held.failed_attempts,
        "rejections": held.rejections.as_ref().map(|rejections| json!({
            "rejections": rejections.rejections,
            "verifications": rejections.verifications,
            "lastVerdict": rejections.last_verdict.map(name),
            "nextRunTime": rejections.next_run.map(rfc3339),
        })),
        "lifetime": held.bound.as_ref().map(|bound| json!({
            "fetchTime": held.fetched_at.map(rfc3339),
            "seconds": lifetime(held).map(|lifetime| lifetime.as_secs()),
            "bound": bound,
        })),
        "nextRun": {"cause": held.next_run_cause, "time": held.next_run.map(rfc3339)},
    })
}

/// From when the broker received the credential to its expiry.
pub(super) fn lifetime(held: &CredentialState) -> Option<Duration> {
    held.expires_at?.duration_since(held.fetched_at?).ok()
}

#[cfg(test)]
mod tests;
