//! What a broker is and holds: what commands ask it, and how they show it, as text and as JSON.

use std::{
    collections::HashSet,
    fmt::Write as _,
    io,
    time::{Duration, SystemTime},
};

use credbroker_client::{
    Client, Error, Failure,
    admin::{BrokerInfo, ConfigurationState, CredentialState, ProviderState, Rejections, Selector, State},
};
use serde_json::{Value, json};

use super::{
    broker::{name, reason},
    console::{Console, OutputFormat},
    screen::{Screen, Tone, ahead, counted, dated, fitted, rfc3339, span, wrapped},
};
use credbroker_credential::text::one_line;
use credbroker_observe::clock::{Clock as _, SystemClock};

#[derive(Debug)]
pub(super) struct Overview {
    pub(super) broker: BrokerInfo,
    pub(super) providers: Vec<ProviderState>,
    pub(super) credentials: Vec<CredentialState>,
}

impl Overview {
    pub(super) async fn read(client: &Client, selector: &Selector) -> Result<Self, Error> {
        let admin = client.admin();
        let credentials = admin.credentials(selector).await?;
        let mut providers = admin.providers().await?;
        match selector {
            Selector::Provider(name) => providers.retain(|provider| provider.name == *name),
            Selector::All => {}
            _ => providers.clear(),
        }
        Ok(Self { broker: admin.broker_info().await?, providers, credentials })
    }

    /// The providers that no credential is of.
    pub(super) fn idle(&self) -> impl Iterator<Item = &ProviderState> {
        let held: HashSet<_> =
            self.credentials.iter().map(|held| (&held.provider, &held.definition)).collect();
        self.providers.iter().filter(move |provider| !held.contains(&(&provider.name, &provider.definition)))
    }

    /// Whether a person should look at it.
    pub(super) fn has_failed(&self) -> bool {
        let failed = |held: &CredentialState| held.state == State::Failed || held.last_failure.is_some();
        self.credentials.iter().any(failed)
            || self.providers.iter().any(|provider| provider.failure.is_some())
            || self.broker.hub.as_ref().is_some_and(|hub| hub.failure.is_some())
            || self.broker.configuration.as_ref().is_some_and(|state| !state.problems.is_empty())
    }
}

pub(super) fn text(overview: &Overview, screen: Screen, now: SystemTime) -> String {
    let mut text = header(&overview.broker, screen, now);
    text.push('\n');
    text.push_str(&table(&rows(overview, now), screen));
    let configuration = overview.broker.configuration.as_ref().map(configuration_lines).unwrap_or_default();
    text.push_str(if configuration.is_empty() { "" } else { "\n" });
    text.extend(configuration.iter().map(|line| wrapped(line, 4, screen.width())));
    text
}

fn rows(overview: &Overview, now: SystemTime) -> Vec<CredentialRow> {
    let held = overview.credentials.iter().map(|held| (&held.provider, CredentialRow::of(held, now)));
    let idle = overview.idle().map(|provider| (&provider.name, CredentialRow::idle(provider)));
    let mut rows: Vec<_> = held.chain(idle).collect();
    rows.sort_by_key(|(name, _)| *name);
    rows.into_iter().map(|(_, row)| row).collect()
}

/// `credbroker 0.1.0 (3f2a9c1), up 3h`.
pub(super) fn title(broker: &BrokerInfo, now: SystemTime) -> String {
    let short = |commit: &String| one_line(commit).chars().take(7).collect::<String>();
    let commit = broker.commit.as_ref().map(|commit| format!(" ({})", short(commit))).unwrap_or_default();
    let up = broker.started_at.and_then(|at| now.duration_since(at).ok());
    let up = up.map(|up| format!(", up {}", span(up))).unwrap_or_default();
    format!("credbroker {}{commit}{up}", one_line(&broker.version))
}

fn header(broker: &BrokerInfo, screen: Screen, now: SystemTime) -> String {
    let mut lines = vec![title(broker, now)];
    let labelled = |label: &str, texts: &[String]| -> Vec<String> {
        let labels = std::iter::once(label).chain(std::iter::repeat(""));
        labels.zip(texts).map(|(label, text)| format!("{label:<6}  {}", one_line(text))).collect()
    };
    lines.extend(labelled("config", &broker.config_files));
    lines.extend(labelled("socket", &broker.sockets));
    let mut text: String = lines.iter().map(|line| wrapped(line, 8, screen.width())).collect();
    if let Some(hub) = &broker.hub {
        let (tone, state) = match (&hub.failure, hub.synced) {
            (Some(failure), _) => (Tone::Bad, format!("failed: {}", one_line(&failure.message))),
            (None, true) => (Tone::Good, "ready".to_owned()),
            (None, false) => (Tone::Pending, "not read yet".to_owned()),
        };
        let since = hub.since.and_then(|at| now.duration_since(at).ok());
        let since = since.map(|ago| format!(", for {}", span(ago))).unwrap_or_default();
        let line = wrapped(&format!("hub     {state}{since}"), 8, screen.width());
        text.extend(line.lines().map(|line| screen.paint(tone, line) + "\n"));
    }
    text
}

pub(super) fn document(overview: &Overview) -> Value {
    json!({
        "broker": overview.broker,
        "configuration": overview.broker.configuration,
        "providers": overview.providers,
        "credentials": overview.credentials.iter().map(state_json).collect::<Vec<_>>(),
    })
}

/// Why the files are not in force as they are; empty: they are.
fn configuration_lines(state: &ConfigurationState) -> Vec<String> {
    let shown = |at: Option<SystemTime>| at.map_or_else(|| "an unknown time".to_owned(), rfc3339);
    let mut lines = Vec::new();
    if !state.problems.is_empty() {
        lines.push(format!(
            "The files of the configuration have problems since {}. The broker continues with those of {}:",
            shown(state.problems_since),
            shown(state.read_at)
        ));
    }
    lines.extend(state.problems.iter().map(|problem| format!("  {}", one_line(problem))));
    let restart =
        |key: &String| format!("`{}` has changed. Restart the broker to use the new value.", one_line(key));
    lines.extend(state.restart_needed.iter().map(restart));
    lines
}

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
    notes: Vec<String>,
}

const HEAD: [&str; 7] = ["PROVIDER", "STATE", "EXPIRES", "NEXT RUN", "RUNS", "WATCHES", "KEY"];
/// The column of the state, and those that a narrow terminal leaves out.
const LAYOUT: (usize, &[usize]) = (1, &[5, 4, 6, 3]);

impl CredentialRow {
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

pub(super) fn state_json(held: &CredentialState) -> Value {
    let lifetime = held.bound.as_ref().map(|bound| {
        let seconds = lifetime(held).map(|lifetime| lifetime.as_secs());
        json!({"fetchTime": held.fetched_at.map(rfc3339), "seconds": seconds, "bound": bound})
    });
    let next_run = json!({"cause": held.next_run_cause, "time": held.next_run.map(rfc3339)});
    extended(json!(held), json!({"lifetime": lifetime, "nextRun": next_run}))
}

pub(super) fn extended(mut document: Value, more: Value) -> Value {
    if let (Value::Object(fields), Value::Object(more)) = (&mut document, more) {
        fields.extend(more);
    }
    document
}

/// From when the broker received the credential to its expiry.
pub(super) fn lifetime(held: &CredentialState) -> Option<Duration> {
    held.expires_at?.duration_since(held.fetched_at?).ok()
}

#[cfg(test)]
pub(super) mod tests;
