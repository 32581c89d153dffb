//! The entries of a kubeconfig: merged from several files, marked as ours, and printed.

use std::{collections::HashSet, path::Path};

use anyhow::Context as _;

use credbroker_config::kubeconfig::{KubeFile, Kubeconfig};
use credbroker_credential::document::{Key, Node, Position, Value};

/// Entries of a map.
pub(super) type Entries = Vec<(Key, Node)>;

/// Of items with the same name the first is used whole; of other values the first that is not empty. Unknown keys stay.
///
/// `user` may change each user of the result, whose paths are absolute.
pub(super) fn merged(kubeconfig: &Kubeconfig, mut user: impl FnMut(&str, &mut Entries)) -> Node {
    let mut entries: Entries = vec![entry("apiVersion", string("v1")), entry("kind", string("Config"))];
    let mut seen = HashSet::new();
    for file in kubeconfig.files() {
        for (key, node) in file.root.as_mapping().unwrap_or_default() {
            let list = key.name.as_str();
            let there = entries.iter_mut().find(|(name, _)| name.name == list);
            match (there.map(|(_, node)| &mut node.value), &node.value) {
                (there, Value::Sequence(items)) if is_list_of_names(list) => {
                    let new = items.iter().filter(|item| seen.insert((list, name(item))));
                    let new = new.map(|item| relocated(list, item, file, &mut user));
                    match there {
                        Some(Value::Sequence(all)) => all.extend(new),
                        Some(other) => *other = Value::Sequence(new.collect()),
                        None => {
                            let items = new.collect();
                            entries.push(entry(list, Value::Sequence(items)));
                        }
                    }
                }
                (Some(Value::Mapping(all)), Value::Mapping(more)) => {
                    for (key, node) in more {
                        if !all.iter().any(|(name, _)| name.name == key.name) {
                            all.push((key.clone(), node.clone()));
                        }
                    }
                }
                (Some(there), _) if !is_empty(there) => {}
                (Some(there), value) => there.clone_from(value),
                (None, _) => entries.push((key.clone(), node.clone())),
            }
        }
    }
    drop_marks(&mut entries);
    Value::Mapping(entries).into()
}

pub(super) fn entry(name: &str, value: Value) -> (Key, Node) {
    (Key { name: name.to_owned(), at: Position::UNKNOWN }, value.into())
}

pub(super) fn string(text: impl Into<String>) -> Value {
    Value::String(text.into())
}

/// Makes the path at `key` absolute. With `bare_names`, a name without a separator stays: it is looked up in `PATH`.
pub(super) fn absolute(entries: &mut Entries, key: &str, dir: &Path, bare_names: bool) {
    let found = entries.iter_mut().find(|(name, _)| name.name == key);
    let Some((_, Node { value: Value::String(path), .. })) = found else { return };
    if path.is_empty() || (bare_names && !path.contains('/')) {
        return;
    }
    let absolute: std::path::PathBuf = dir.join(&*path).components().collect();
    if let Some(absolute) = absolute.to_str() {
        absolute.clone_into(path);
    }
}

/// An item with absolute paths.
fn relocated(list: &str, item: &Node, file: &KubeFile, user: &mut impl FnMut(&str, &mut Entries)) -> Node {
    let mut item = item.clone();
    let name = name(&item).unwrap_or_default().to_owned();
    let dir = file.path.parent().unwrap_or(Path::new("/"));
    match list {
        "clusters" => {
            if let Some(cluster) = body(&mut item, "cluster") {
                absolute(cluster, "certificate-authority", dir, false);
            }
        }
        "users" => {
            if let Some(entries) = body(&mut item, "user") {
                for key in ["client-certificate", "client-key", "tokenFile"] {
                    absolute(entries, key, dir, false);
                }
                if let Some(exec) = map(entries, "exec") {
                    absolute(exec, "command", dir, true);
                }
                user(&name, entries);
            }
        }
        _ => {}
    }
    item
}

fn body<'a>(item: &'a mut Node, key: &str) -> Option<&'a mut Entries> {
    let Value::Mapping(entries) = &mut item.value else { return None };
    map(entries, key)
}

/// The entries of the map at `key`.
pub(super) fn map<'a>(entries: &'a mut Entries, key: &str) -> Option<&'a mut Entries> {
    let (_, node) = entries.iter_mut().find(|(name, _)| name.name == key)?;
    if let Value::Mapping(entries) = &mut node.value { Some(entries) } else { None }
}

/// The name of an item.
pub(super) fn name(item: &Node) -> Option<&str> {
    item.get("name").and_then(Node::as_str)
}

fn is_list_of_names(key: &str) -> bool {
    matches!(key, "clusters" | "contexts" | "users" | "extensions")
}

fn is_empty(value: &Value) -> bool {
    matches!(value, Value::Null) || matches!(value, Value::String(text) if text.is_empty())
}

/// How the names of these extensions begin. They are about one file, and not merged.
const OURS: &str = "credbroker.io/";

/// The list `extensions` with this mark.
pub(super) fn marks(mark: &str, says: Value) -> Value {
    Value::Sequence(vec![item(mark, says)])
}

/// Puts a mark into `document`, in the place of an earlier one.
pub(super) fn attach_mark(document: &mut Node, mark: &str, says: Value) {
    let Value::Mapping(entries) = &mut document.value else { return };
    let extensions = entries.iter_mut().find(|(key, _)| key.name == "extensions");
    match extensions.map(|(_, node)| &mut node.value) {
        Some(Value::Sequence(items)) => {
            items.retain(|item| name(item) != Some(mark));
            items.push(item(mark, says));
        }
        Some(other) => *other = marks(mark, says),
        None => entries.push(entry("extensions", marks(mark, says))),
    }
}

fn item(mark: &str, says: Value) -> Node {
    Value::Mapping(vec![entry("name", string(mark)), entry("extension", says)]).into()
}

/// Removes all marks from the entries of a kubeconfig.
pub(super) fn drop_marks(entries: &mut Entries) {
    let is_ours = |item: &Node| name(item).is_some_and(|name| name.starts_with(OURS));
    for (_, node) in entries.iter_mut().filter(|(key, _)| key.name == "extensions") {
        if let Value::Sequence(items) = &mut node.value {
            items.retain(|item| !is_ours(item));
        }
    }
    let is_empty = |node: &Node| node.as_sequence().is_some_and(<[Node]>::is_empty);
    entries.retain(|(key, node)| key.name != "extensions" || !is_empty(node));
}

/// The document in block style. A string that YAML 1.1 or 1.2 could read as another value is in quotes.
pub(super) fn yaml(node: &Node) -> anyhow::Result<String> {
    let options = serde_saphyr::ser_options! { prefer_block_scalars: false };
    serde_saphyr::to_string_with_options(node, options).context("cannot write the kubeconfig as YAML")
}

#[cfg(test)]
mod tests;
