//! Keys and their kinds, described: for the reference, which a test writes.

use std::{num::NonZeroUsize, time::Duration};

use super::{
    Boolean, Checked, ConfigKey, Count, Enumeration, Id, Is, ListOf, Map, MapOrMaps, Optional, Required,
    Section, Size, SocketMode, Text, TimeSpan,
};
use credbroker_units::{duration, size};

/// A key, for those that describe it.
pub(crate) trait Declared {
    fn about(&self) -> About;
}

/// What a key is.
pub(crate) struct About {
    pub(crate) name: &'static str,
    pub(crate) shape: Shape,
    pub(crate) absent: Absence,
}

/// What applies without a key.
pub(crate) enum Absence {
    Required,
    InWords,
    /// As Markdown.
    Value(String),
}

impl<K: Described, A: Absent<K>> Declared for ConfigKey<K, A> {
    fn about(&self) -> About {
        About { name: self.name, shape: self.kind.shape(), absent: self.absent.of(&self.kind) }
    }
}

/// What applies without a key of kind `K`.
trait Absent<K> {
    fn of(&self, kind: &K) -> Absence;
}

impl<K> Absent<K> for Required {
    fn of(&self, _: &K) -> Absence {
        Absence::Required
    }
}

impl<K> Absent<K> for Optional {
    fn of(&self, _: &K) -> Absence {
        Absence::InWords
    }
}

impl<V, K: Shown<V>> Absent<K> for Is<V> {
    fn of(&self, kind: &K) -> Absence {
        Absence::Value(format!("`{}`", kind.shown(&self.0)))
    }
}

/// What values a key takes.
pub(crate) enum Shape {
    /// A string: what it is, and a regular expression for it.
    Text(String, Option<&'static str>),
    Boolean,
    /// A whole number from 1 to this one.
    Count(u32),
    /// A number of bytes that is less than this one.
    Size(u64),
    /// A uid or gid.
    Id,
    OneOf(Vec<&'static str>),
    List(Box<Shape>),
    Map(&'static Section),
    MapOrMaps(&'static Section),
}

/// A kind of value, described.
trait Described {
    fn shape(&self) -> Shape;
}

/// A kind that has defaults, as they are written in a configuration.
trait Shown<V> {
    fn shown(&self, value: &V) -> String;
}

impl Described for Text {
    fn shape(&self) -> Shape {
        Shape::Text(self.0.to_owned(), self.1)
    }
}

impl Described for Checked {
    fn shape(&self) -> Shape {
        Shape::Text(self.0.to_owned(), Some(self.1))
    }
}

impl Described for SocketMode {
    fn shape(&self) -> Shape {
        Shape::Text("octal mode in quotes".to_owned(), Some("^0?6[0246][0246]$"))
    }
}

impl Shown<u32> for SocketMode {
    fn shown(&self, mode: &u32) -> String {
        format!("\"{mode:04o}\"")
    }
}

impl Described for TimeSpan {
    fn shape(&self) -> Shape {
        let what = format!("duration from 1s to {}, such as `30s`, `10m` or `1h30m`", self.shown(&self.0));
        Shape::Text(what, Some(duration::PATTERN))
    }
}

impl Shown<Duration> for TimeSpan {
    fn shown(&self, duration: &Duration) -> String {
        duration::text(*duration)
    }
}

impl Described for Size {
    fn shape(&self) -> Shape {
        Shape::Size(self.0)
    }
}

impl Shown<NonZeroUsize> for Size {
    fn shown(&self, bytes: &NonZeroUsize) -> String {
        size::text(bytes.get() as u64)
    }
}

impl Described for Boolean {
    fn shape(&self) -> Shape {
        Shape::Boolean
    }
}

impl Shown<bool> for Boolean {
    fn shown(&self, value: &bool) -> String {
        value.to_string()
    }
}

impl Described for Count {
    fn shape(&self) -> Shape {
        Shape::Count(self.0)
    }
}

impl Shown<NonZeroUsize> for Count {
    fn shown(&self, value: &NonZeroUsize) -> String {
        value.to_string()
    }
}

impl Described for Id {
    fn shape(&self) -> Shape {
        Shape::Id
    }
}

impl<T> Described for Enumeration<T> {
    fn shape(&self) -> Shape {
        Shape::OneOf(self.0.iter().map(|(name, _)| *name).collect())
    }
}

impl<T: PartialEq> Shown<T> for Enumeration<T> {
    fn shown(&self, value: &T) -> String {
        let named = self.0.iter().find(|(name, named)| named == value && !name.is_empty());
        named.map(|(name, _)| (*name).to_owned()).unwrap_or_default()
    }
}

impl<K: Described> Described for ListOf<K> {
    fn shape(&self) -> Shape {
        Shape::List(Box::new(self.0.shape()))
    }
}

impl Described for Map {
    fn shape(&self) -> Shape {
        Shape::Map(self)
    }
}

impl Described for MapOrMaps {
    fn shape(&self) -> Shape {
        Shape::MapOrMaps(self.0)
    }
}
