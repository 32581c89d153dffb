//! The parts of a key, as a table.

use std::fmt::Write as _;

use credbroker_client::admin::{CredentialExplanation, KeyPart, KeyPartKind, KeyPartOrigin};

use crate::cli::{
    explain::{differences::PartName, names::kind as kind_name},
    screen::{Screen, Tone},
    table,
};
use credbroker_credential::text::{one_line, shown};
use credbroker_plugin::Environment;

/// A row of the table: the part, its origin, its fingerprint, and the value in this process.
type Cells = [String; 4];

pub(super) fn differing_row(
    part: &PartName<'_>,
    explained: &CredentialExplanation,
    own: Option<&Environment>,
) -> Cells {
    let found = explained.key_parts.iter().find(|found| PartName::of(found) == *part);
    found.map_or_else(
        || [format!("* {}", label(part, None)), "-".to_owned(), "absent".to_owned(), own_value(part, own)],
        |found| row("*", found, own),
    )
}

pub(super) fn row(mark: &str, part: &KeyPart, own: Option<&Environment>) -> Cells {
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
        KeyPartKind::ClusterProfile => "ClusterProfile",
        KeyPartKind::Unknown => "unknown part",
        kind => kind_name(kind),
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

pub(super) fn table(rows: &[Cells], own: Option<&Environment>, screen: Screen) -> String {
    let rows: Vec<_> = rows.iter().map(|cells| (Tone::Plain, cells.clone())).collect();
    let here = if own.is_some() { "HERE" } else { "" };
    table::fitted(["  PART", "FROM", "FINGERPRINT", here], &rows, (1, &[2]), screen)
}
