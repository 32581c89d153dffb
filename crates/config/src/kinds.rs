//! The kinds of values in the configuration: how each is read, described, and written as a default.

mod values;

use std::{num::NonZeroUsize, time::Duration};

use super::{
    keys::{Kind, Section, Shape, Shaped, Shown},
    problem::Report,
    reader::Cursor,
};
use credbroker_plugin::Globs;
use values::{count, duration, ids, name, octal, socket_mode, text, variable_names, with_unit};

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
    /// A list of strings.
    Texts: Vec<String> = list(&Text), Cursor::texts;
    /// A list of uids or gids. The highest number identifies none.
    Ids: Vec<u32> = Shape::List(Box::new(Shape::Id)), ids;
    /// Names of environment variables, in which `*` matches any text.
    VariableNames: Globs = list(&Checked("variable name with `*`", VARIABLE_NAME)), variable_names;
}

/// A whole number from 1 to this one.
pub(super) struct Count(pub(super) u32);

/// A whole number above 0 with its unit: `30s`, `10m`, `12h`.
pub(super) struct TimeSpan {
    longest: Duration,
    what: &'static str,
}

impl TimeSpan {
    /// How long a plugin runs.
    pub(super) const RUN: Self =
        Self { longest: Duration::from_secs(24 * 3600), what: "duration, at most 24h" };
    /// How old a credential becomes.
    pub(super) const AGE: Self =
        Self { longest: Duration::from_secs(8760 * 3600), what: "duration, at most 8760h" };
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
    Count: |kind| Shape::Count(kind.0);
    TimeSpan: |kind| Shape::Text(kind.what, Some("^0*[1-9][0-9]*[smh]$"));
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

impl Kind for Count {
    type Value = NonZeroUsize;

    fn read(&self, at: &Cursor<'_>, report: &mut Report) -> Option<NonZeroUsize> {
        count(at, self.0, report)
    }
}

impl Shown for Count {
    fn shown(&self, value: &NonZeroUsize) -> String {
        value.to_string()
    }
}

impl Kind for TimeSpan {
    type Value = Duration;

    fn read(&self, at: &Cursor<'_>, report: &mut Report) -> Option<Duration> {
        duration(at, self.longest, report)
    }
}

impl Shown for TimeSpan {
    fn shown(&self, value: &Duration) -> String {
        with_unit(value)
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
