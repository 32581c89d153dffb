//! The kinds of values in the configuration: how each is read, described, and written as a default.

use std::{num::NonZeroUsize, time::Duration};

use super::{
    keys::{Kind, Section, Shape, Shaped, Shown},
    problem::Report,
    reader::Cursor,
};
use crate::plugin::Globs;

/// Any string.
pub(super) struct Text;

/// The only string that is valid.
pub(super) struct Constant(pub(super) &'static str);

/// One of these strings. An empty one is accepted and not documented.
pub(super) struct Enumeration<T: 'static>(pub(super) &'static [(&'static str, T)]);

/// A name that messages, logs and command lines can contain.
pub(super) struct Name;

/// A string that its section checks: what it is, and a regular expression for it.
pub(super) struct Checked(pub(super) &'static str, pub(super) &'static str);

/// Permission bits of a socket: to connect is to write, so no other bits mean anything.
pub(super) struct SocketMode;

pub(super) struct Boolean;

/// A whole number above 0.
pub(super) struct Count;

/// A whole number above 0 with its unit: `30s`, `10m`, `12h`.
pub(super) struct TimeSpan;

/// A list of strings.
pub(super) struct Texts;

/// A list of strings that its section checks.
pub(super) struct ListOf(pub(super) Checked);

/// A list of some of these strings.
pub(super) struct Choices<T: 'static>(pub(super) Enumeration<T>);

/// A list of uids or gids. The highest number identifies none.
pub(super) struct Ids;

/// Names of environment variables, in which `*` matches any text.
pub(super) struct VariableNames;

/// A map.
pub(super) struct Map(pub(super) &'static Section);

/// A map, or a list of maps that is not empty.
pub(super) struct MapOrMaps(pub(super) &'static Section);

/// A list of maps.
pub(super) struct Maps(pub(super) &'static Section);

impl Shaped for Text {
    fn shape(&self) -> Shape {
        Shape::Text("string", None)
    }
}

impl Kind for Text {
    type Value = String;

    fn read(&self, at: &Cursor<'_>, report: &mut Report) -> Option<String> {
        at.text(report).map(str::to_owned)
    }
}

impl Shaped for Constant {
    fn shape(&self) -> Shape {
        Shape::OneOf(vec![self.0])
    }
}

impl Kind for Constant {
    type Value = ();

    fn read(&self, at: &Cursor<'_>, report: &mut Report) -> Option<()> {
        let is_it = at.node().as_str() == Some(self.0);
        if !is_it {
            at.problem(report, format!("must be `{}`", self.0));
        }
        is_it.then_some(())
    }
}

impl<T> Shaped for Enumeration<T> {
    fn shape(&self) -> Shape {
        Shape::OneOf(self.0.iter().map(|(name, _)| *name).collect())
    }
}

impl<T: Copy> Kind for Enumeration<T> {
    type Value = T;

    fn read(&self, at: &Cursor<'_>, report: &mut Report) -> Option<T> {
        at.choice(self.0, report)
    }
}

impl<T: Copy + PartialEq> Shown for Enumeration<T> {
    fn shown(&self, value: &T) -> String {
        let named = self.0.iter().find(|(name, named)| named == value && !name.is_empty());
        named.map(|(name, _)| (*name).to_owned()).unwrap_or_default()
    }
}

impl Shaped for Name {
    fn shape(&self) -> Shape {
        Shape::Text("name", Some(r"^[^\u0000-\u001f\u007f-\u009f]+$"))
    }
}

impl Kind for Name {
    type Value = String;

    fn read(&self, at: &Cursor<'_>, report: &mut Report) -> Option<String> {
        let name = at.text(report)?;
        if name.is_empty() || name.chars().any(char::is_control) {
            at.problem(report, "must be a name: not empty, without control characters");
            return None;
        }
        Some(name.to_owned())
    }
}

impl Shaped for Checked {
    fn shape(&self) -> Shape {
        Shape::Text(self.0, Some(self.1))
    }
}

impl Shaped for SocketMode {
    fn shape(&self) -> Shape {
        Shape::Text("octal mode in quotes", Some("^0?6[0246][0246]$"))
    }
}

impl Kind for SocketMode {
    type Value = u32;

    fn read(&self, at: &Cursor<'_>, report: &mut Report) -> Option<u32> {
        let mode = at.node().as_str().and_then(mode);
        if mode.is_none() {
            at.problem(report, "must be an octal mode in quotes from \"0600\" to \"0666\" with read and write for the owner, like \"0660\"");
        }
        mode
    }
}

impl Shown for SocketMode {
    fn shown(&self, value: &u32) -> String {
        format!("\"{value:04o}\"")
    }
}

fn mode(text: &str) -> Option<u32> {
    let octal = (3..=4).contains(&text.len()) && text.bytes().all(|byte| matches!(byte, b'0'..=b'7'));
    let mode = u32::from_str_radix(text, 8).ok().filter(|_| octal)?;
    (mode & 0o600 == 0o600 && mode & !0o666 == 0).then_some(mode)
}

impl Shaped for Boolean {
    fn shape(&self) -> Shape {
        Shape::Boolean
    }
}

impl Kind for Boolean {
    type Value = bool;

    fn read(&self, at: &Cursor<'_>, report: &mut Report) -> Option<bool> {
        at.boolean(report)
    }
}

impl Shown for Boolean {
    fn shown(&self, value: &bool) -> String {
        value.to_string()
    }
}

impl Shaped for Count {
    fn shape(&self) -> Shape {
        Shape::Count
    }
}

impl Kind for Count {
    type Value = NonZeroUsize;

    fn read(&self, at: &Cursor<'_>, report: &mut Report) -> Option<NonZeroUsize> {
        at.count(report)
    }
}

impl Shown for Count {
    fn shown(&self, value: &NonZeroUsize) -> String {
        value.to_string()
    }
}

impl Shaped for TimeSpan {
    fn shape(&self) -> Shape {
        Shape::Text("duration", Some("^0*[1-9][0-9]*[smh]$"))
    }
}

impl Kind for TimeSpan {
    type Value = Duration;

    fn read(&self, at: &Cursor<'_>, report: &mut Report) -> Option<Duration> {
        at.duration(report)
    }
}

impl Shown for TimeSpan {
    fn shown(&self, value: &Duration) -> String {
        match value.as_secs() {
            seconds if seconds % 3600 == 0 => format!("{}h", seconds / 3600),
            seconds if seconds % 60 == 0 => format!("{}m", seconds / 60),
            seconds => format!("{seconds}s"),
        }
    }
}

impl Shaped for Texts {
    fn shape(&self) -> Shape {
        Shape::List(Box::new(Text.shape()))
    }
}

impl Kind for Texts {
    type Value = Vec<String>;

    fn read(&self, at: &Cursor<'_>, report: &mut Report) -> Option<Vec<String>> {
        Some(at.texts(report))
    }
}

impl Shaped for ListOf {
    fn shape(&self) -> Shape {
        Shape::List(Box::new(self.0.shape()))
    }
}

impl<T> Shaped for Choices<T> {
    fn shape(&self) -> Shape {
        Shape::List(Box::new(self.0.shape()))
    }
}

impl<T: Copy> Kind for Choices<T> {
    type Value = Vec<T>;

    fn read(&self, at: &Cursor<'_>, report: &mut Report) -> Option<Vec<T>> {
        let items = at.items(report);
        Some(items.iter().filter_map(|item| self.0.read(item, report)).collect())
    }
}

impl Shaped for Ids {
    fn shape(&self) -> Shape {
        Shape::List(Box::new(Shape::Id))
    }
}

impl Kind for Ids {
    type Value = Vec<u32>;

    fn read(&self, at: &Cursor<'_>, report: &mut Report) -> Option<Vec<u32>> {
        let mut ids = Vec::new();
        for item in at.items(report) {
            let id = item.node().as_number().and_then(|number| number.parse().ok());
            match id.filter(|id| *id != u32::MAX) {
                Some(id) => ids.push(id),
                None => item.problem(report, "must be a number from 0 to 4294967294"),
            }
        }
        Some(ids)
    }
}

impl Shaped for VariableNames {
    fn shape(&self) -> Shape {
        Shape::List(Box::new(Shape::Text("variable name with `*`", Some(r"^[^=?\[{ $\u0000]+$"))))
    }
}

impl Kind for VariableNames {
    type Value = Globs;

    fn read(&self, at: &Cursor<'_>, report: &mut Report) -> Option<Globs> {
        let items = at.items(report);
        let mut patterns = Vec::new();
        for item in &items {
            let Some(pattern) = item.text(report) else { continue };
            if pattern.is_empty() || pattern.contains(['=', '\0', '?', '[', '{', ' ', '$']) {
                item.problem(report, "must be the name of a variable, in which `*` matches any text");
            } else {
                patterns.push(pattern);
            }
        }
        Some(Globs::new(patterns))
    }
}

impl Shaped for Map {
    fn shape(&self) -> Shape {
        Shape::Map(self.0)
    }
}

impl Shaped for MapOrMaps {
    fn shape(&self) -> Shape {
        Shape::MapOrMaps(self.0)
    }
}

impl Shaped for Maps {
    fn shape(&self) -> Shape {
        Shape::List(Box::new(Shape::Map(self.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_is_one_that_a_socket_can_use() {
        for (text, expected) in
            [("0600", 0o600), ("600", 0o600), ("0660", 0o660), ("0666", 0o666), ("0620", 0o620)]
        {
            assert_eq!(mode(text), Some(expected), "{text}");
        }
        for text in ["", "0", "0400", "0060", "0700", "0670", "4600", "00600", "0o600", "+600", "0680", "rw"]
        {
            assert_eq!(mode(text), None, "{text}");
        }
    }
}
