//! What `credbroker status` asks the broker, and how it is shown: as text, and as JSON.

use std::{collections::HashSet, time::SystemTime};

use credbroker_client::{
    Client, Error,
    admin::{BrokerInfo, ConfigurationState, CredentialState, ProviderState, Selector, State},
};
use serde_json::{Value, json};

use crate::cli::{
    broker::{failure_json, hub_json},
    credentials::{CredentialRow, state_json, table},
    screen::{Screen, Tone, rfc3339, span, wrapped},
};
use credbroker_credential::text::one_line;

/// A broker, and what of it was selected.
#[derive(Debug)]
pub(in crate::cli) struct Overview {
    pub(in crate::cli) broker: BrokerInfo,
    pub(in crate::cli) providers: Vec<ProviderState>,
    pub(in crate::cli) credentials: Vec<CredentialState>,
}

impl Overview {
    /// Reads what `selector` selects.
    pub(in crate::cli) async fn read(client: &Client, selector: &Selector) -> Result<Self, Error> {
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

/// The whole text.
pub(super) fn text(overview: &Overview, screen: Screen, now: SystemTime) -> String {
    let mut text = header(&overview.broker, screen, now);
    text.push('\n');
    text.push_str(&table(&rows(overview, now), screen));
    let configuration = overview.broker.configuration.as_ref().map(configuration_lines).unwrap_or_default();
    text.push_str(if configuration.is_empty() { "" } else { "\n" });
    text.extend(configuration.iter().map(|line| wrapped(line, 4, screen.width())));
    text
}

/// The credentials and the providers without one, by the names of the providers.
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
    let broker = &overview.broker;
    json!({
        "broker": {
            "version": broker.version,
            "commit": broker.commit,
            "startTime": broker.started_at.map(rfc3339),
            "configFiles": broker.config_files,
            "sockets": broker.sockets,
            "hub": broker.hub.as_ref().map(hub_json),
        },
        "configuration": broker.configuration.as_ref().map(|state| json!({
            "readTime": state.read_at.map(rfc3339),
            "reloads": state.reloads,
            "problems": state.problems,
            "problemsSinceTime": state.problems_since.map(rfc3339),
            "restartNeeded": state.restart_needed,
        })),
        "providers": overview.providers.iter().map(|provider| json!({
            "name": provider.name,
            "definition": provider.definition,
            "command": provider.command,
            "servesClusterProfiles": provider.serves_cluster_profiles,
            "failure": provider.failure.as_ref().map(failure_json),
        })).collect::<Vec<_>>(),
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

#[cfg(test)]
pub(super) mod tests;
