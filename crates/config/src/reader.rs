//! Reads values from a document, and continues after a problem, so that all problems are reported together.

use std::path::Path;

use super::problem::{Location, Report, suggestion};
use credbroker_credential::document::{Node, Value};

/// What happens with unknown keys.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Dialect {
    /// Our own config: an unknown key is an error.
    Strict,
    /// cluster-inventory-api's provider file, as Go's `encoding/json` reads it: keys match in any case, and an unknown key
    /// is a warning.
    Stock,
    /// A kubeconfig: unknown keys are ignored, because they belong to other programs.
    Kubeconfig,
}

/// A value, its path for messages, and the report for its problems.
#[derive(Clone, Debug)]
pub(super) struct Cursor<'a> {
    pub(super) report: &'a Report,
    pub(super) node: &'a Node,
    pub(super) dialect: Dialect,
    file: &'a Path,
    /// Such as `providers[0].execConfig`. Empty for the whole document.
    path: String,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(file: &'a Path, dialect: Dialect, node: &'a Node, report: &'a Report) -> Self {
        Self { report, node, file, dialect, path: String::new() }
    }

    /// The value `node` further down in the same document, at `path`.
    pub(super) fn below(&self, path: String, node: &'a Node) -> Self {
        Self { node, path, ..*self }
    }

    /// The directory of the file, which relative paths are relative to.
    pub(super) fn dir(&self) -> &'a Path {
        self.file.parent().unwrap_or(Path::new("/"))
    }

    pub(super) fn place(&self) -> Location<'a> {
        Location { file: self.file, at: self.node.at }
    }

    pub(super) fn problem(&self, message: impl AsRef<str>) {
        self.report.problem(self.place(), self.sentence(message.as_ref()));
    }

    /// Reports a problem that leaves no value.
    pub(super) fn reject<T>(&self, message: impl AsRef<str>) -> Option<T> {
        self.problem(message);
        None
    }

    pub(super) fn warning(&self, message: impl AsRef<str>) {
        self.report.warning(self.place(), self.sentence(message.as_ref()));
    }

    /// This as a map whose keys are among `known`.
    pub(super) fn fields(&self, known: &[&str]) -> Option<Self> {
        let Some(entries) = self.node.as_mapping() else { return self.wrong("a map") };
        for (key, _) in entries.iter().filter(|(key, _)| !known.iter().any(|known| self.is(&key.name, known)))
        {
            let place = Location { file: self.file, at: key.at };
            let message = self.sentence(&format!("unknown key `{}`", key.name));
            match self.dialect {
                Dialect::Strict => {
                    let meant = suggestion(',', &key.name, known.iter().copied());
                    self.report.problem(place, message + &meant);
                }
                Dialect::Stock => self.report.warning(place, message + ", which is ignored"),
                Dialect::Kubeconfig => {}
            }
        }
        Some(self.clone())
    }

    /// The value of `key`, when this is a map; null is the same as no value.
    pub(super) fn get(&self, key: &str) -> Option<Self> {
        let entries = self.node.as_mapping().unwrap_or_default();
        // Of keys that differ in case only the last one counts, as in Go.
        let (_, node) = entries.iter().rfind(|(name, _)| self.is(&name.name, key))?;
        let path = if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) };
        (!node.is_null()).then(|| self.below(path, node))
    }

    /// The items of the list `key`; none without the key.
    pub(super) fn items_of(&self, key: &str) -> Vec<Self> {
        self.get(key).and_then(|list| list.items()).unwrap_or_default()
    }

    pub(super) fn text(&self) -> Option<&'a str> {
        self.node.as_str().or_else(|| self.wrong("a string"))
    }

    pub(super) fn boolean(&self) -> Option<bool> {
        self.node.as_bool().or_else(|| self.wrong("a boolean"))
    }

    pub(super) fn items(&self) -> Option<Vec<Self>> {
        let Some(items) = self.node.as_sequence() else { return self.wrong("a list") };
        let item = |(index, node)| self.below(format!("{}[{index}]", self.path), node);
        Some(items.iter().enumerate().map(item).collect())
    }

    fn wrong<T>(&self, expected: &str) -> Option<T> {
        let quotes = matches!(self.node.value, Value::Bool(_) | Value::Number(_)) && expected == "a string";
        let remedy = if quotes { "; put it in quotes" } else { "" };
        self.reject(format!("expected {expected}, found {}{remedy}", self.node.value.kind()))
    }

    fn sentence(&self, message: &str) -> String {
        if self.path.is_empty() { message.to_owned() } else { format!("{}: {message}", self.path) }
    }

    /// Whether `key` of the document is the key `known`.
    fn is(&self, key: &str, known: &str) -> bool {
        key == known || (self.dialect == Dialect::Stock && key.eq_ignore_ascii_case(known))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::lines;
    use credbroker_credential::document::{Aliases, yaml};

    #[test]
    fn everything_that_is_wrong_is_reported_with_its_place() {
        let text = "a: 1\nb: text\nc: [x, 2]\nlimts: 4\nn:\n";
        let node = yaml(text.as_bytes(), Aliases::Follow).unwrap();
        let report = Report::default();
        let root = Cursor::new(Path::new("f"), Dialect::Strict, &node, &report);
        let fields = root.fields(&["a", "b", "c", "limits", "n"]).unwrap();
        assert_eq!(fields.get("a").unwrap().text(), None);
        assert_eq!(fields.get("b").unwrap().boolean(), None);
        assert_eq!(fields.items_of("c").iter().filter_map(Cursor::text).collect::<Vec<_>>(), ["x"]);
        assert!(fields.get("n").is_none());
        insta::assert_snapshot!(lines(&report.findings().problems), @r"
f:4:1: unknown key `limts`, did you mean `limits`?
f:5:1: unknown key `false`
f:1:4: a: expected a string, found a number; put it in quotes
f:2:4: b: expected a boolean, found a string
f:3:8: c[1]: expected a string, found a number; put it in quotes
");
    }
}
