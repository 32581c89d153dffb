//! Merges kubeconfigs as client-go does, into one that has the same meaning in any directory.

use std::{collections::HashSet, path::Path};

use credbroker_config::kubeconfig::Kubeconfig;
use credbroker_credential::document::{Key, Node, Position, Value};

/// Of items with the same name the first is used whole; of other values the first that is not empty. Unknown keys stay.
///
/// `user` may change each user of the result, whose paths are absolute.
pub(super) fn merged(kubeconfig: &Kubeconfig, mut user: impl FnMut(&str, &mut Node)) -> Node {
    let mut entries = vec![entry("apiVersion", string("v1")), entry("kind", string("Config"))];
    let mut seen = HashSet::new();
    for file in kubeconfig.files() {
        let dir = file.path.parent().unwrap_or(Path::new("/"));
        for (key, node) in file.root.as_mapping().unwrap_or_default() {
            let list = key.name.as_str();
            let has_names = matches!(list, "clusters" | "contexts" | "users" | "extensions");
            let mut node = node.clone();
            if let Value::Sequence(items) = &mut node.value
                && has_names
            {
                items.retain(|item| seen.insert((list, name(item).map(str::to_owned))));
                for item in items {
                    relocate(list, item, dir, &mut user);
                }
            }
            let Some((_, there)) = entries.iter_mut().find(|(name, _)| name.name == list) else {
                entries.push((key.clone(), node));
                continue;
            };
            match (&mut there.value, node.value) {
                (Value::Sequence(all), Value::Sequence(more)) if has_names => all.extend(more),
                (Value::Mapping(all), Value::Mapping(more)) => {
                    for new in more {
                        if !all.iter().any(|(name, _)| name.name == new.0.name) {
                            all.push(new);
                        }
                    }
                }
                (there, value) if is_empty(there) => *there = value,
                _ => {}
            }
        }
    }
    Value::Mapping(entries).into()
}

/// Makes the paths of an item absolute.
fn relocate(list: &str, item: &mut Node, dir: &Path, user: &mut impl FnMut(&str, &mut Node)) {
    let name = name(item).unwrap_or_default().to_owned();
    if let Some(cluster) = child(item, "cluster").filter(|_| list == "clusters") {
        absolute(cluster, "certificate-authority", dir);
    }
    let Some(body) = child(item, "user").filter(|_| list == "users") else { return };
    for key in ["client-certificate", "client-key", "tokenFile"] {
        absolute(body, key, dir);
    }
    // A name without a separator is looked up in `PATH`.
    let exec = child(body, "exec");
    let is_path =
        |exec: &&mut Node| exec.get("command").and_then(Node::as_str).is_some_and(|it| it.contains('/'));
    if let Some(exec) = exec.filter(is_path) {
        absolute(exec, "command", dir);
    }
    user(&name, body);
}

fn absolute(of: &mut Node, key: &str, dir: &Path) {
    if let Some(Node { value: Value::String(path), .. }) = child(of, key)
        && !path.is_empty()
        && let absolute = dir.join(&*path).components().collect::<std::path::PathBuf>()
        && let Some(absolute) = absolute.to_str()
    {
        absolute.clone_into(path);
    }
}

/// The value of `key`, when `of` is a map that has it.
pub(super) fn child<'a>(of: &'a mut Node, key: &str) -> Option<&'a mut Node> {
    let Value::Mapping(entries) = &mut of.value else { return None };
    entries.iter_mut().find_map(|(name, node)| (name.name == key).then_some(node))
}

/// The name of an item.
pub(super) fn name(item: &Node) -> Option<&str> {
    item.get("name").and_then(Node::as_str)
}

pub(super) fn entry(name: &str, value: Value) -> (Key, Node) {
    (Key { name: name.to_owned(), at: Position::UNKNOWN }, value.into())
}

pub(super) fn string(text: impl Into<String>) -> Value {
    Value::String(text.into())
}

fn is_empty(value: &Value) -> bool {
    matches!(value, Value::Null) || matches!(value, Value::String(text) if text.is_empty())
}
