//! `credbroker status` for people.

use std::{fmt::Write as _, time::SystemTime};

use credbroker_client::admin::BrokerInfo;

use super::overview::Overview;
use crate::cli::{
    configuration,
    credentials::{CredentialRow, table},
    screen::{Screen, Tone},
    time::span,
    wrapped::wrapped,
};
use credbroker_credential::text::one_line;

/// The whole text.
pub(super) fn text(overview: &Overview, screen: Screen, now: SystemTime) -> String {
    let mut text = header(&overview.broker, screen, now);
    text.push('\n');
    text.push_str(&table(&rows(overview, now), screen));
    let configuration = overview.broker.configuration.as_ref().map(configuration::text).unwrap_or_default();
    if !configuration.is_empty() {
        text.push('\n');
    }
    text.extend(configuration.lines().map(|line| wrapped(line, 4, screen.width())));
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
    let mut title = format!("credbroker {}", one_line(&broker.version));
    if let Some(commit) = &broker.commit {
        let short: String = one_line(commit).chars().take(7).collect();
        let _infallible = write!(title, " ({short})");
    }
    if let Some(up) = broker.started_at.and_then(|at| now.duration_since(at).ok()) {
        let _infallible = write!(title, ", up {}", span(up));
    }
    title
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

#[cfg(test)]
pub(super) mod tests;
