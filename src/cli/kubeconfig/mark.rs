//! The marks of credbroker in kubeconfigs: which command wrote a file, and what it needs to know about it. They are
//! extensions, because kubectl keeps extensions when it rewrites a file, and drops comments.

use super::merge::{Entries, entry, name, string};
use credbroker_credential::document::{Node, Value};

/// How the names of these extensions begin. They are about one file, and not merged.
const OURS: &str = "credbroker.io/";

/// The list `extensions` with this mark.
pub(super) fn list(mark: &str, says: Value) -> Value {
    Value::Sequence(vec![item(mark, says)])
}

/// Puts a mark into `document`, in the place of an earlier one.
pub(super) fn attach(document: &mut Node, mark: &str, says: Value) {
    let Value::Mapping(entries) = &mut document.value else { return };
    let extensions = entries.iter_mut().find(|(key, _)| key.name == "extensions");
    match extensions.map(|(_, node)| &mut node.value) {
        Some(Value::Sequence(items)) => {
            items.retain(|item| name(item) != Some(mark));
            items.push(item(mark, says));
        }
        Some(other) => *other = list(mark, says),
        None => entries.push(entry("extensions", list(mark, says))),
    }
}

fn item(mark: &str, says: Value) -> Node {
    Value::Mapping(vec![entry("name", string(mark)), entry("extension", says)]).into()
}

/// Removes all marks from the entries of a kubeconfig.
pub(super) fn drop_all(entries: &mut Entries) {
    let is_ours = |item: &Node| name(item).is_some_and(|name| name.starts_with(OURS));
    for (_, node) in entries.iter_mut().filter(|(key, _)| key.name == "extensions") {
        if let Value::Sequence(items) = &mut node.value {
            items.retain(|item| !is_ours(item));
        }
    }
    let is_empty = |node: &Node| node.as_sequence().is_some_and(<[Node]>::is_empty);
    entries.retain(|(key, node)| key.name != "extensions" || !is_empty(node));
}
