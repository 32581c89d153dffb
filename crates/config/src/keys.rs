//! What a key of the configuration is: its name, the [kind](super::kinds) of its value, what applies without it, its
//! documentation and an example. [`table`](super::table) declares every key once; readers, `docs/configuration.md` and
//! the JSON Schema all come from there.

use super::{fields::Fields, problem::Report, reader::Cursor};

/// A map with a fixed set of keys.
pub(super) struct Section {
    /// Its name in the JSON Schema.
    pub(super) name: &'static str,
    pub(super) doc: &'static str,
    pub(super) keys: &'static [&'static (dyn Declared + Sync)],
}

/// A key of a section. `A` is what applies without it: [`Required`], [`Optional`] or [`Is`].
pub(super) struct ConfigKey<K, A> {
    pub(super) name: &'static str,
    pub(super) kind: K,
    pub(super) absent: A,
    pub(super) doc: &'static str,
    /// A value, as YAML.
    pub(super) example: &'static str,
}

/// The key must be there. A hint for the message, which may be empty.
pub(super) struct Required(pub(super) &'static str);

/// What applies without the key, in words.
pub(super) struct Optional(pub(super) &'static str);

/// The value without the key.
pub(super) struct Is<V>(pub(super) V);

/// A key, for those that describe it.
pub(super) trait Declared {
    fn name(&self) -> &'static str;
    fn doc(&self) -> &'static str;
    fn example(&self) -> &'static str;
    fn shape(&self) -> Shape;
    /// What applies without the key, as Markdown; `None`: it is required.
    fn default(&self) -> Option<String>;
}

/// What values a key takes.
pub(super) enum Shape {
    /// A string: what it is, and a regular expression for it.
    Text(&'static str, Option<&'static str>),
    Boolean,
    /// A whole number from 1 to this one.
    Count(u32),
    /// A uid or gid.
    Id,
    OneOf(Vec<&'static str>),
    List(Box<Shape>),
    Map(&'static Section),
    MapOrMaps(&'static Section),
}

pub(super) trait Shaped {
    fn shape(&self) -> Shape;
}

/// A kind of value that can be read without any context.
pub(super) trait Kind: Shaped {
    type Value;

    /// The value at `at`; `None` with a problem in `report` if it is not of this kind.
    fn read(&self, at: &Cursor<'_>, report: &mut Report) -> Option<Self::Value>;
}

/// A kind whose values have a default.
pub(super) trait Shown: Kind {
    /// `value` as it is written in a configuration.
    fn shown(&self, value: &Self::Value) -> String;
}

impl<K: Kind> ConfigKey<K, Optional> {
    pub(super) fn read(&self, fields: &Fields<'_>, report: &mut Report) -> Option<K::Value> {
        self.kind.read(&fields.at(self)?, report)
    }
}

impl<K: Kind> ConfigKey<K, Required> {
    pub(super) fn read(&self, fields: &Fields<'_>, report: &mut Report) -> Option<K::Value> {
        self.kind.read(&fields.required(self, report)?, report)
    }
}

impl<K: Kind> ConfigKey<K, Is<K::Value>>
where
    K::Value: Copy,
{
    /// The value, or the default if there is none, or none that is valid.
    pub(super) fn read(&self, fields: &Fields<'_>, report: &mut Report) -> K::Value {
        fields.get(self.name).and_then(|at| self.kind.read(&at, report)).unwrap_or(self.absent.0)
    }
}

impl<K: Shaped, A: Absent<K>> Declared for ConfigKey<K, A> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn doc(&self) -> &'static str {
        self.doc
    }

    fn example(&self) -> &'static str {
        self.example
    }

    fn shape(&self) -> Shape {
        self.kind.shape()
    }

    fn default(&self) -> Option<String> {
        self.absent.shown(&self.kind)
    }
}

/// What applies without a key of kind `K`.
pub(super) trait Absent<K> {
    fn shown(&self, kind: &K) -> Option<String>;
}

impl<K> Absent<K> for Required {
    fn shown(&self, _: &K) -> Option<String> {
        None
    }
}

impl<K> Absent<K> for Optional {
    fn shown(&self, _: &K) -> Option<String> {
        Some(self.0.to_owned())
    }
}

impl<K: Shown> Absent<K> for Is<K::Value> {
    fn shown(&self, kind: &K) -> Option<String> {
        Some(format!("`{}`", kind.shown(&self.0)))
    }
}
