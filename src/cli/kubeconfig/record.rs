//! The mark of `kubeconfig wrap` in a kubeconfig: what it read and wrote.

use std::{collections::HashMap, path::PathBuf};

use super::{
    digest::digest,
    mark,
    merge::{Entries, entry, name, string},
};
use credbroker_config::kubeconfig::extension;
use credbroker_credential::document::{Node, Value};

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
        mark::attach(document, MARK, self.value());
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
