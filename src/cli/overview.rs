//! What a broker is and holds: what commands ask it, and how they show it, as text and as JSON.

use std::{
    collections::{HashMap, HashSet},
    fmt::Write as _,
    io,
    path::Path,
    time::{Duration, SystemTime},
};

use credbroker_client::{
    Error, Failure,
    admin::{
        Admin, BrokerInfo, ConfigurationState, CredentialState, ProviderState, Rejections, Selector, State,
    },
};
use serde_json::{Value, json};

use super::{
    broker::{name, reason},
    console::{Console, OutputFormat},
    screen::{Screen, Tone, ahead, counted, dated, fitted, rfc3339, shortened, span, wrapped},
};
use credbroker_credential::text::{one_line, shown_path};
use credbroker_observe::clock::{Clock as _, SystemClock};

#[derive(Debug)]
pub(super) struct Overview {
    pub(super) broker: BrokerInfo,
    pub(super) providers: Vec<ProviderState>,
    pub(super) credentials: Vec<CredentialState>,
}

impl Overview {
    pub(super) async fn read(admin: &Admin, selector: &Selector) -> Result<Self, Error> {
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

    /// A row for each credential, in the given order, and then for each provider without one.
    pub(super) fn rows<'a>(
        &'a self,
        credentials: impl IntoIterator<Item = &'a CredentialState>,
        now: SystemTime,
    ) -> Vec<CredentialRow> {
        let held = self.credentials.iter().map(|held| (&*held.provider, held.definition_file.as_deref()));
        let idle = self.providers.iter().map(|of| (&*of.name, of.definition_file.as_deref()));
        let repeated = repeated(held.chain(idle));
        let held = credentials.into_iter().map(|held| CredentialRow::of(held, &repeated, now));
        held.chain(self.idle().map(|provider| CredentialRow::idle(provider, &repeated))).collect()
    }

    /// Whether a user should look at it.
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
    let mut rows = overview.rows(&overview.credentials, now);
    rows.sort_by(|one, other| one.cells[0].cmp(&other.cells[0]));
    text.push_str(&table(&rows, screen));
    let configuration = overview.broker.configuration.as_ref().map(configuration_lines).unwrap_or_default();
    text.push_str(if configuration.is_empty() { "" } else { "\n" });
    text.extend(configuration.iter().map(|line| wrapped(line, 4, screen.width())));
    text
}

/// The names that providers of several files have.
fn repeated<'a>(providers: impl Iterator<Item = (&'a str, Option<&'a str>)>) -> HashSet<&'a str> {
    let mut first = HashMap::new();
    let repeats = |(name, file): &(&'a str, Option<&'a str>)| first.entry(*name).or_insert(*file) != file;
    providers.filter(repeats).map(|(name, _)| name).collect()
}

/// The provider, with its file if its name is one of `repeated`.
fn named(name: &str, file: Option<&str>, repeated: &HashSet<&str>) -> String {
    match file.filter(|_| repeated.contains(name)) {
        Some(file) => one_line(&format!("{name} ({})", shown_path(Path::new(file)))),
        None => one_line(name),
    }
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

/// Why the files are not active as they are; empty: they are.
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
    let repeated = repeated(states.iter().map(|held| (&*held.provider, held.definition_file.as_deref())));
    let rows = || states.iter().map(|held| CredentialRow::of(held, &repeated, now)).collect::<Vec<_>>();
    let document = || json!({ "credentials": states.iter().map(state_json).collect::<Vec<_>>() });
    console.print(format, || table(&rows(), screen), document)
}

/// A row of the table: a credential, or a provider without one.
#[derive(Debug)]
pub(super) struct CredentialRow {
    tone: Tone,
    cells: [String; 8],
    notes: Vec<String>,
}

const HEAD: [&str; 8] = ["PROVIDER", "ACCOUNT", "STATE", "EXPIRES", "NEXT RUN", "RUNS", "WATCHES", "ID"];
/// The column of the state, and those that a narrow terminal leaves out.
const LAYOUT: (usize, &[usize]) = (2, &[6, 5, 7, 4, 1]);

impl CredentialRow {
    fn of(held: &CredentialState, repeated: &HashSet<&str>, now: SystemTime) -> Self {
        let time =
            |at: Option<SystemTime>, past| at.map_or_else(|| "-".to_owned(), |at| ahead(at, now, past));
        let tone = match held.state {
            State::Failed => Tone::Bad,
            State::Valid => Tone::Good,
            State::Refreshing | State::Waiting => Tone::Pending,
            _ => Tone::Plain,
        };
        let provider = match held.cluster_profile {
            Some(_) => provider(held),
            None => named(&held.provider, held.definition_file.as_deref(), repeated),
        };
        let failure = held.last_failure.as_ref().map(|failure| described(&provider, failure));
        let summary = |rejections| format!("{provider} {}: {}", held.id, summary(rejections, now));
        let rejections = held.rejections.as_ref().filter(|known| known.rejections > 0).map(summary);
        let cells = [
            provider,
            account(held),
            name(held.state),
            time(held.expires_at, "expired"),
            time(held.next_refresh, "now"),
            held.runs.to_string(),
            held.watches.to_string(),
            held.id.clone(),
        ];
        Self { tone, cells, notes: failure.into_iter().chain(rejections).collect() }
    }

    fn idle(provider: &ProviderState, repeated: &HashSet<&str>) -> Self {
        let (tone, state) = match &provider.failure {
            None => (Tone::Faint, "idle"),
            Some(_) => (Tone::Bad, "unusable"),
        };
        let name = named(&provider.name, provider.definition_file.as_deref(), repeated);
        let notes = provider.failure.iter().map(|failure| described(&name, failure)).collect();
        let cells = [&name, "-", state, "-", "-", "0", "0", "-"].map(str::to_owned);
        Self { tone, cells, notes }
    }
}

/// `AWS_PROFILE=prod`, with a `*` if this shell gets the credential.
pub(super) fn account(held: &CredentialState) -> String {
    let variables = held.account.iter().map(|(name, value)| format!("{name}={value}"));
    let mark = held.is_of_caller.then(|| "*".to_owned());
    let words: Vec<_> = mark.into_iter().chain(variables).collect();
    if words.is_empty() { "-".to_owned() } else { one_line(&words.join(" ")) }
}

pub(super) fn described(name: &str, failure: &Failure) -> String {
    format!("{name}: {}: {}", reason(failure), one_line(&failure.message))
}

/// `rows` and what there is to say about them, in the width of `screen`.
pub(super) fn table(rows: &[CredentialRow], screen: Screen) -> String {
    let mut cells: Vec<_> = rows.iter().map(|row| (row.tone, row.cells.clone())).collect();
    for (_, cells) in &mut cells {
        cells[1] = shortened(&cells[1], screen.width() / 2);
    }
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
