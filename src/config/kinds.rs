//! The kinds of values in the configuration: how each is read, described, and written as a default.

use std::{num::NonZeroUsize, time::Duration};

use super::{
    keys::{Kind, Section, Shape, Shaped, Shown},
    problem::Report,
    reader::Cursor,
};
use crate::plugin::Globs;

/// The pattern of a [`VariableNames`] item.
const VARIABLE_NAME: &str = r"^[^=?\[{ $\u0000]+$";

/// Kinds without parameters: the type of the value, its shape, the function that reads it or returns `None`, and, if it
/// has defaults, how they are written.
macro_rules! kinds {
    ($($(#[doc = $doc:literal])* $kind:ident: $value:ty = $shape:expr, $read:expr $(, $shown:expr)?;)+) => {$(
        $(#[doc = $doc])*
        pub(super) struct $kind;

        impl Shaped for $kind {
            fn shape(&self) -> Shape {
                $shape
            }
        }

        impl Kind for $kind {
            type Value = $value;

            fn read(&self, at: &Cursor<'_>, report: &mut Report) -> Option<$value> {
                $read(at, report).into()
            }
        }

        $(impl Shown for $kind {
            fn shown(&self, value: &$value) -> String {
                $shown(value)
            }
        })?
    )+};
}

kinds! {
    /// Any string.
    Text: String = Shape::Text("string", None), text;
    /// A name that messages, logs and command lines can contain.
    Name: String = Shape::Text("name", Some(r"^[^\u0000-\u001f\u007f-\u009f]+$")), name;
    /// Permission bits of a socket: to connect is to write, so no other bits mean anything.
    SocketMode: u32 = Shape::Text("octal mode in quotes", Some("^0?6[0246][0246]$")), socket_mode, octal;
    /// True or false.
    Boolean: bool = Shape::Boolean, Cursor::boolean, ToString::to_string;
    /// A whole number above 0.
    Count: NonZeroUsize = Shape::Count, Cursor::count, ToString::to_string;
    /// A whole number above 0 with its unit: `30s`, `10m`, `12h`.
    TimeSpan: Duration = Shape::Text("duration", Some("^0*[1-9][0-9]*[smh]$")), Cursor::duration, with_unit;
    /// A list of strings.
    Texts: Vec<String> = list(&Text), Cursor::texts;
    /// A list of uids or gids. The highest number identifies none.
    Ids: Vec<u32> = Shape::List(Box::new(Shape::Id)), ids;
    /// Names of environment variables, in which `*` matches any text.
    VariableNames: Globs = list(&Checked("variable name with `*`", VARIABLE_NAME)), variable_names;
}

/// The only string that is valid.
pub(super) struct Constant(pub(super) &'static str);

/// One of these strings. An empty one is accepted and not documented.
pub(super) struct Enumeration<T: 'static>(pub(super) &'static [(&'static str, T)]);

/// A list of some of these strings.
pub(super) struct Choices<T: 'static>(pub(super) Enumeration<T>);

/// A string that its section checks: what it is, and a regular expression for it.
pub(super) struct Checked(pub(super) &'static str, pub(super) &'static str);

/// A list of strings that its section checks.
pub(super) struct ListOf(pub(super) Checked);

/// A map.
pub(super) struct Map(pub(super) &'static Section);

/// A map, or a list of maps that is not empty.
pub(super) struct MapOrMaps(pub(super) &'static Section);

/// A list of maps.
pub(super) struct Maps(pub(super) &'static Section);

/// The shapes of kinds that their sections read.
macro_rules! shapes {
    ($($kind:ty: $shape:expr;)+) => {$(
        impl Shaped for $kind {
            fn shape(&self) -> Shape {
                let shape: fn(&Self) -> Shape = $shape;
                shape(self)
            }
        }
    )+};
}

shapes! {
    Constant: |kind| Shape::OneOf(vec![kind.0]);
    Checked: |kind| Shape::Text(kind.0, Some(kind.1));
    ListOf: |kind| list(&kind.0);
    Map: |kind| Shape::Map(kind.0);
    MapOrMaps: |kind| Shape::MapOrMaps(kind.0);
    Maps: |kind| list(&Map(kind.0));
}

fn list(item: &impl Shaped) -> Shape {
    Shape::List(Box::new(item.shape()))
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

impl<T> Shaped for Choices<T> {
    fn shape(&self) -> Shape {
        list(&self.0)
    }
}

impl<T: Copy> Kind for Choices<T> {
    type Value = Vec<T>;

    fn read(&self, at: &Cursor<'_>, report: &mut Report) -> Option<Vec<T>> {
        let items = at.items(report);
        Some(items.iter().filter_map(|item| self.0.read(item, report)).collect())
    }
}

fn text(at: &Cursor<'_>, report: &mut Report) -> Option<String> {
    at.text(report).map(str::to_owned)
}

fn name(at: &Cursor<'_>, report: &mut Report) -> Option<String> {
    let name = at.text(report)?;
    if name.is_empty() || name.chars().any(char::is_control) {
        at.problem(report, "must be a name: not empty, without control characters");
        return None;
    }
    Some(name.to_owned())
}

fn socket_mode(at: &Cursor<'_>, report: &mut Report) -> Option<u32> {
    let mode = at.node().as_str().and_then(mode);
    if mode.is_none() {
        at.problem(report, "must be an octal mode in quotes from \"0600\" to \"0666\" with read and write for the owner, like \"0660\"");
    }
    mode
}

fn mode(text: &str) -> Option<u32> {
    let octal = (3..=4).contains(&text.len()) && text.bytes().all(|byte| matches!(byte, b'0'..=b'7'));
    let mode = u32::from_str_radix(text, 8).ok().filter(|_| octal)?;
    (mode & 0o600 == 0o600 && mode & !0o666 == 0).then_some(mode)
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as for the other kinds")]
fn octal(mode: &u32) -> String {
    format!("\"{mode:04o}\"")
}

fn with_unit(duration: &Duration) -> String {
    match duration.as_secs() {
        seconds if seconds % 3600 == 0 => format!("{}h", seconds / 3600),
        seconds if seconds % 60 == 0 => format!("{}m", seconds / 60),
        seconds => format!("{seconds}s"),
    }
}

fn ids(at: &Cursor<'_>, report: &mut Report) -> Vec<u32> {
    let mut ids = Vec::new();
    for item in at.items(report) {
        let id = item.node().as_number().and_then(|number| number.parse().ok());
        match id.filter(|id| *id != u32::MAX) {
            Some(id) => ids.push(id),
            None => item.problem(report, "must be a number from 0 to 4294967294"),
        }
    }
    ids
}

fn variable_names(at: &Cursor<'_>, report: &mut Report) -> Globs {
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
    Globs::new(patterns)
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
