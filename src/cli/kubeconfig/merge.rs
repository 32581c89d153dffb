//! Merges kubeconfigs as client-go does, into one that has the same meaning in any directory.

use std::{collections::HashSet, path::Path};

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
