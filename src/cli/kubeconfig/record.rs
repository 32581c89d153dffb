//! What `wrap` wrote, recorded in the copy itself: the digest of each of its items.

use std::{
    collections::{BTreeMap, HashMap},
    path::{Component, Path, PathBuf},
};

use serde_json::Value as Json;

use super::nodes::{Entries, attach_mark, entry, name, string};
use credbroker_config::kubeconfig::extension;
use credbroker_credential::document::{Node, Value};
use credbroker_plugin::Sha256;

const MARK: &str = "credbroker.io/wrap";
/// The lists that people add to.
pub(super) const LISTS: [(&str, &str); 3] =
    [("contexts", "context"), ("clusters", "cluster"), ("users", "user")];

/// What was read and written.
#[derive(Debug, Default)]
pub(super) struct Record {
    /// The kubeconfigs that were read.
    pub(super) sources: Vec<PathBuf>,
    pub(super) current_context: String,
    /// Digests of the items, by list and name.
    items: HashMap<(String, String), String>,
}

impl Record {
    /// Of a document that is written.
    pub(super) fn of(document: &Node, sources: &[PathBuf]) -> Self {
        let mut items = HashMap::new();
        for (list, _) in LISTS {
            for item in document.get(list).and_then(Node::as_sequence).unwrap_or_default() {
                let name = name(item).unwrap_or_default().to_owned();
                items.insert((list.to_owned(), name), digest(list, item));
            }
        }
        Self { sources: sources.to_owned(), current_context: current_context(document).to_owned(), items }
    }

    /// Of a file that was written; `None`: by another program.
    pub(super) fn read(root: &Node) -> Option<Self> {
        let ours = extension(root, MARK)?;
        let sources = ours.get("sources").and_then(Node::as_sequence).unwrap_or_default();
        let items = LISTS.iter().flat_map(|(list, _)| {
            let digests = ours.get(list).and_then(Node::as_mapping).unwrap_or_default();
            digests.iter().filter_map(|(name, digest)| {
                Some((((*list).to_owned(), name.name.clone()), digest.as_str()?.to_owned()))
            })
        });
        Some(Self {
            sources: sources.iter().filter_map(Node::as_str).map(PathBuf::from).collect(),
            current_context: current_context(ours).to_owned(),
            items: items.collect(),
        })
    }

    /// The digest of an item as it was written.
    pub(super) fn digest(&self, list: &str, name: &str) -> Option<&str> {
        self.items.get(&(list.to_owned(), name.to_owned())).map(String::as_str)
    }

    /// Puts this into `document`, in the place of an earlier one.
    pub(super) fn attach(&self, document: &mut Node) {
        attach_mark(document, MARK, self.value());
    }

    fn value(&self) -> Value {
        let sources = self.sources.iter().map(|path| string(path.to_string_lossy()).into());
        let mut entries = vec![
            entry("sources", Value::Sequence(sources.collect())),
            entry("current-context", string(self.current_context.as_str())),
        ];
        for (list, _) in LISTS {
            let of_list = self.items.iter().filter(|((of, _), _)| of == list);
            let mut digests: Entries =
                of_list.map(|((_, name), digest)| entry(name, string(digest.as_str()))).collect();
            digests.sort_by(|(one, _), (other, _)| one.name.cmp(&other.name));
            entries.push(entry(list, Value::Mapping(digests)));
        }
        Value::Mapping(entries)
    }
}

/// The name of the current context; empty: there is none.
pub(super) fn current_context(document: &Node) -> &str {
    document.get("current-context").and_then(Node::as_str).unwrap_or_default()
}

/// The keys of an item, its body and its `exec` stanza that kubectl knows.
const KNOWN: &[&str] = &[
    "name",
    "cluster",
    "context",
    "user",
    "extensions",
    "server",
    "tls-server-name",
    "insecure-skip-tls-verify",
    "certificate-authority",
    "certificate-authority-data",
    "proxy-url",
    "disable-compression",
    "namespace",
    "client-certificate",
    "client-certificate-data",
    "client-key",
    "client-key-data",
    "token",
    "tokenFile",
    "as",
    "as-uid",
    "as-groups",
    "as-user-extra",
    "username",
    "password",
    "auth-provider",
    "exec",
    "apiVersion",
    "command",
    "args",
    "env",
    "installHint",
    "provideClusterInfo",
    "interactiveMode",
];
/// Values below these keys are free-form.
const FREE: &[&str] = &["extensions", "auth-provider", "as-user-extra", "args", "env"];
const PATHS: &[&str] = &["certificate-authority", "client-certificate", "client-key", "tokenFile"];

/// 16 hexadecimal digits. `item` is one of the list `list`, and its paths are absolute.
pub(super) fn digest(list: &str, item: &Node) -> String {
    let canonical = canonical(list, &item.to_json(), false).unwrap_or_default().to_string();
    let mut digest = Sha256::of(canonical.as_bytes()).to_hex();
    digest.truncate(16);
    digest
}

/// The value without what means nothing, and with sorted keys; `None`: nothing is left.
fn canonical(key: &str, value: &Json, is_free: bool) -> Option<Json> {
    let is_free = is_free || FREE.contains(&key);
    match value {
        Json::Null | Json::Bool(false) => None,
        Json::String(text) if text.is_empty() => None,
        Json::String(text) if key.ends_with("-data") => {
            Some(text.split_ascii_whitespace().collect::<String>().into())
        }
        Json::String(text) if PATHS.contains(&key) => Some(clean(text).into()),
        Json::String(_) | Json::Bool(_) | Json::Number(_) => Some(value.clone()),
        Json::Array(items) => {
            // An argument may be empty.
            let items = items.iter().map(|item| canonical("", item, is_free).unwrap_or_default());
            Some(items.collect())
                .filter(|items: &Json| items.as_array().is_some_and(|items| !items.is_empty()))
        }
        Json::Object(entries) => {
            let known = entries.iter().filter(|(key, _)| is_free || KNOWN.contains(&key.as_str()));
            let entries =
                known.filter_map(|(key, value)| Some((key.clone(), canonical(key, value, is_free)?)));
            let entries: BTreeMap<_, _> = entries.collect();
            (!entries.is_empty()).then(|| entries.into_iter().collect())
        }
    }
}

/// Without `..`, as Go's `filepath.Clean`.
fn clean(path: &str) -> String {
    let mut clean = PathBuf::new();
    for component in Path::new(path).components() {
        match component {
            Component::ParentDir => drop(clean.pop()),
            other => clean.push(other),
        }
    }
    clean.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests;
