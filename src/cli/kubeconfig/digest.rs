//! Whether an item of a kubeconfig has changed, although kubectl writes it in another form: with other order of keys,
//! without empty values and without keys that it does not know.

use std::{
    collections::BTreeMap,
    path::{Component, Path, PathBuf},
};

use serde_json::Value as Json;

use credbroker_credential::document::Node;
use credbroker_plugin::Sha256;

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
