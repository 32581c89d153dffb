//! What client-go refuses to load as a whole.

use std::collections::HashSet;

use crate::{
    problem::{Location, Report},
    reader::Cursor,
};
use credbroker_credential::document::Node;

/// The lists of a kubeconfig, and how the body of an item is called in each.
const LISTS: [(&str, &str); 4] =
    [("clusters", "cluster"), ("contexts", "context"), ("users", "user"), ("extensions", "extension")];

/// Reports what is wrong with the form of a kubeconfig.
pub(super) fn check(root: &Cursor<'_>, report: &mut Report) {
    let Some(fields) = root.fields(&[], report) else { return };
    for (key, expected) in [("apiVersion", "v1"), ("kind", "Config")] {
        let other = fields.get(key).filter(
            |value| !matches!(value.node().as_str(), Some(text) if text == expected || text.is_empty()),
        );
        if let Some(value) = other {
            value.problem(report, format!("a kubeconfig has `{key}: {expected}`"));
        }
    }
    for (list, body) in LISTS {
        let Some(items) = fields.get(list) else { continue };
        names(&items, report);
        for item in items.items(report) {
            let Some(entries) = item.fields(&[], report) else { continue };
            let Some(body) = entries.get(body).filter(|_| list != "extensions") else { continue };
            let extensions = body.fields(&[], report).and_then(|body| body.get("extensions"));
            if let Some(extensions) = extensions {
                names(&extensions, report);
            }
        }
    }
}

/// Checks that the names of the items are distinct.
fn names(items: &Cursor<'_>, report: &mut Report) {
    let mut seen = HashSet::new();
    for item in items.node().as_sequence().unwrap_or_default() {
        let place = Location { file: items.file(), at: item.at };
        let Some(name) = item.get("name").and_then(Node::as_str) else {
            report.problem(
                place,
                "an item needs a `name`, which is text; write it in quotes if it looks like something else",
            );
            continue;
        };
        if !seen.insert(name) {
            report.problem(place, format!("the name `{name}` is there twice in one list"));
        }
    }
}
