//! Reads typed values from a document, and continues after a problem, so that all problems are reported at once.

use std::path::Path;

use super::{
    fields::Fields,
    keys::Section,
    problem::{Location, Report},
};
use credbroker_credential::{
    document::{Node, Position, Value},
    text::nearest,
};

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

/// A value, and its path for messages.
#[derive(Clone, Debug)]
pub(super) struct Cursor<'a> {
    file: &'a Path,
    dialect: Dialect,
    /// Such as `providers[0].execConfig`. Empty for the whole document.
    path: String,
    node: &'a Node,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(file: &'a Path, dialect: Dialect, node: &'a Node) -> Self {
        Self { file, dialect, path: String::new(), node }
    }

    /// The value `node` of `key`.
    pub(super) fn value(&self, key: &str, node: &'a Node) -> Self {
        let path = if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) };
        self.below(path, node)
    }

    /// The same kind of document, further down.
    pub(super) fn below(&self, path: String, node: &'a Node) -> Self {
        Self { file: self.file, dialect: self.dialect, path, node }
    }

    pub(super) fn place(&self) -> Location<'a> {
        Location { file: self.file, at: self.node.at }
    }

    pub(super) fn node(&self) -> &'a Node {
        self.node
    }

    pub(super) fn file(&self) -> &'a Path {
        self.file
    }

    pub(super) fn problem(&self, report: &mut Report, message: impl AsRef<str>) {
        report.problem(self.place(), self.sentence(message.as_ref()));
    }

    pub(super) fn warning(&self, report: &mut Report, message: impl AsRef<str>) {
        report.warning(self.place(), self.sentence(message.as_ref()));
    }

    /// This as a map with the keys of `section`.
    pub(super) fn section(&self, section: &Section, report: &mut Report) -> Option<Fields<'a>> {
        let known: Vec<_> = section.keys.iter().map(|key| key.name()).collect();
        self.fields(&known, report)
    }

    /// This as a map whose keys are among `known`.
    pub(super) fn fields(&self, known: &[&str], report: &mut Report) -> Option<Fields<'a>> {
        let Some(entries) = self.node.as_mapping() else {
            self.wrong("a map", report);
            return None;
        };
        for (key, _) in entries.iter().filter(|(key, _)| !known.iter().any(|known| self.is(&key.name, known)))
        {
            let place = Location { file: self.file, at: key.at };
            let message = self.sentence(&format!("unknown key `{}`", key.name));
            match self.dialect {
                Dialect::Strict => {
                    let meant = nearest(&key.name, known.iter().copied());
                    let meant = meant.map(|meant| format!(", did you mean `{meant}`?")).unwrap_or_default();
                    report.problem(place, message + &meant);
                }
                Dialect::Stock => report.warning(place, message + ", which is ignored"),
                Dialect::Kubeconfig => {}
            }
        }
        Some(Fields::of(self.clone()))
    }

    pub(super) fn text(&self, report: &mut Report) -> Option<&'a str> {
        let text = self.node.as_str();
        if text.is_none() {
            self.wrong("a string", report);
        }
        text
    }

    pub(super) fn boolean(&self, report: &mut Report) -> Option<bool> {
        let value = self.node.as_bool();
        if value.is_none() {
            self.wrong("a boolean", report);
        }
        value
    }

    pub(super) fn items(&self, report: &mut Report) -> Vec<Cursor<'a>> {
        let Some(items) = self.node.as_sequence() else {
            self.wrong("a list", report);
            return Vec::new();
        };
        items
            .iter()
            .enumerate()
            .map(|(index, node)| self.below(format!("{}[{index}]", self.path), node))
            .collect()
    }

    pub(super) fn texts(&self, report: &mut Report) -> Vec<String> {
        let items = self.items(report);
        items.iter().filter_map(|item| item.text(report).map(str::to_owned)).collect()
    }

    /// One of `allowed`, by its name.
    pub(super) fn choice<T: Copy>(&self, allowed: &[(&str, T)], report: &mut Report) -> Option<T> {
        let text = self.text(report)?;
        let found = allowed.iter().find(|(name, _)| *name == text).map(|(_, value)| *value);
        if found.is_none() {
            let names = allowed.iter().filter(|(name, _)| !name.is_empty());
            let names = names.map(|(name, _)| format!("`{name}`")).collect::<Vec<_>>().join(", ");
            self.problem(report, format!("must be one of {names}, not `{text}`"));
        }
        found
    }

    fn wrong(&self, expected: &str, report: &mut Report) {
        let quotes = matches!(self.node.value, Value::Bool(_) | Value::Number(_)) && expected == "a string";
        let remedy = if quotes { "; put it in quotes" } else { "" };
        self.problem(report, format!("expected {expected}, found {}{remedy}", self.node.kind()));
    }

    fn sentence(&self, message: &str) -> String {
        if self.path.is_empty() { message.to_owned() } else { format!("{}: {message}", self.path) }
    }

    /// Whether `key` of the document is the key `known`.
    pub(super) fn is(&self, key: &str, known: &str) -> bool {
        key == known || (self.dialect == Dialect::Stock && key.eq_ignore_ascii_case(known))
    }
}

/// A place in `file` without a position.
pub(super) fn whole(file: &Path) -> Location<'_> {
    Location { file, at: Position::UNKNOWN }
}

#[cfg(test)]
mod tests {
    use super::*;
    use credbroker_credential::document::{Aliases, yaml};

    #[test]
    fn everything_that_is_wrong_is_reported_with_its_place() {
        let text = "a: 1\nb: text\nc: [x, 2]\nlimts: 4\nn:\n";
        let node = yaml(text.as_bytes(), Aliases::Follow).unwrap();
        let mut report = Report::default();
        let fields = Cursor::new(Path::new("f"), Dialect::Strict, &node)
            .fields(&["a", "b", "c", "limits", "n"], &mut report);
        let fields = fields.unwrap();
        assert_eq!(fields.get("a").unwrap().text(&mut report), None);
        assert_eq!(fields.get("b").unwrap().boolean(&mut report), None);
        assert_eq!(fields.get("c").unwrap().texts(&mut report), ["x"]);
        assert!(fields.get("n").is_none());
        let problems: Vec<_> = report.problems.iter().map(ToString::to_string).collect();
        insta::assert_snapshot!(problems.join("\n"), @r"
f:4:1: unknown key `limts`, did you mean `limits`?
f:5:1: unknown key `false`
f:1:4: a: expected a string, found a number; put it in quotes
f:2:4: b: expected a boolean, found a string
f:3:8: c[1]: expected a string, found a number; put it in quotes
");
    }
}
