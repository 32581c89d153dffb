//! Reads values from a document, and continues after a problem, so that all problems are reported together. `table` declares
//! every key of the configuration: its name, the kind of its value, and what applies without it.

use std::{
    num::{NonZeroU32, NonZeroUsize},
    path::Path,
    time::Duration,
};

use super::problem::{Location, Report, suggestion};
use credbroker_credential::document::{Node, Value};
use credbroker_units::{duration, size};

/// The largest number of connections, watches or credentials.
pub(super) const MOST: u32 = 1_000_000;
/// The largest number of plugin runs at the same time.
pub(super) const MOST_RUNS: u32 = 100_000;
/// The largest number of plugin runs in a second. The rest of the broker relies on one that is far below 10⁹.
pub(super) const MOST_PER_SECOND: u32 = 1_000_000;

pub(super) const fn count(count: usize) -> NonZeroUsize {
    match NonZeroUsize::new(count) {
        Some(count) => count,
        None => NonZeroUsize::MIN,
    }
}

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

    fn is(&self, key: &str, known: &str) -> bool {
        key == known || (self.dialect == Dialect::Stock && key.eq_ignore_ascii_case(known))
    }
}

/// A map with a fixed set of keys.
pub(super) struct Section {
    pub(super) names: &'static [&'static str],
    /// Its name in the JSON Schema.
    #[cfg(test)]
    pub(super) name: &'static str,
    #[cfg(test)]
    pub(super) keys: &'static [&'static (dyn testing::Declared + Sync)],
}

/// A key of a section. `A` is what applies without it: [`Required`], [`Optional`] or [`Is`].
pub(super) struct ConfigKey<K, A> {
    pub(super) name: &'static str,
    pub(super) kind: K,
    pub(super) absent: A,
}

/// The key must be there. A hint for the message, which may be empty.
pub(super) struct Required(pub(super) &'static str);

/// There is no value without the key. The documentation says what applies then.
pub(super) struct Optional;

/// The value without the key.
pub(super) struct Is<V>(pub(super) V);

impl<K: Kind> ConfigKey<K, Optional> {
    pub(super) fn read<'a>(&self, fields: &Cursor<'a>) -> Option<K::Value<'a>> {
        self.kind.read(&fields.get(self.name)?)
    }
}

impl<K: Kind> ConfigKey<K, Required> {
    pub(super) fn read<'a>(&self, fields: &Cursor<'a>) -> Option<K::Value<'a>> {
        self.kind.read(&fields.get(self.name).or_else(|| self.missing(fields))?)
    }

    pub(super) fn missing<T>(&self, fields: &Cursor<'_>) -> Option<T> {
        let (name, hint) = (self.name, self.absent.0);
        let colon = if hint.is_empty() { "" } else { ": " };
        fields.reject(format!("{name} must be specified{colon}{hint}"))
    }
}

impl<V: Copy, K: for<'a> Kind<Value<'a> = V>> ConfigKey<K, Is<V>> {
    /// The value, or the default if there is none, or none that is valid.
    pub(super) fn read(&self, fields: &Cursor<'_>) -> V {
        fields.get(self.name).and_then(|at| self.kind.read(&at)).unwrap_or(self.absent.0)
    }
}

pub(super) trait Kind {
    type Value<'a>;

    /// The value at `at`; `None` with a problem in the report if it is not of this kind.
    fn read<'a>(&self, at: &Cursor<'a>) -> Option<Self::Value<'a>>;
}

/// A string with a meaning: what it is, a regular expression for it, whether one is valid, and the problem of others.
#[cfg_attr(not(test), expect(dead_code, reason = "a test writes the reference, which has the words"))]
pub(super) struct Text(
    pub(super) &'static str,
    pub(super) Option<&'static str>,
    pub(super) fn(&str) -> bool,
    pub(super) &'static str,
);

impl Text {
    pub(super) const ANY: Self = Self("string", None, |_| true, "");
    /// A name that messages, logs and command lines can contain.
    pub(super) const NAME: Self = Self(
        "name",
        Some(r"^[^\u0000-\u001f\u007f-\u009f]+$"),
        |text| !text.is_empty() && !text.chars().any(char::is_control),
        "must be a name: not empty, without control characters",
    );
    /// The name of an environment variable, in which `*` matches any text.
    pub(super) const VARIABLES: Self = Self(
        "variable name with `*`",
        Some(r"^[^=?\[{ $\u0000]+$"),
        |text| !text.is_empty() && !text.contains(['=', '\0', '?', '[', '{', ' ', '$']),
        "must be the name of a variable, in which `*` matches any text",
    );
    /// What the operating system can take as an argument.
    pub(super) const ARGUMENT: Self = Self(
        "string",
        Some(r"^[^\u0000]*$"),
        |text| !text.contains('\0'),
        "must not contain a NUL character",
    );
}

impl Kind for Text {
    type Value<'a> = String;

    fn read(&self, at: &Cursor<'_>) -> Option<String> {
        let text = at.text()?;
        if (self.2)(text) { Some(text.to_owned()) } else { at.reject(self.3) }
    }
}

/// A string that its section checks, with its place: what it is, and a regular expression for it.
#[cfg_attr(not(test), expect(dead_code, reason = "a test writes the reference, which has the words"))]
pub(super) struct Checked(pub(super) &'static str, pub(super) &'static str);

impl Kind for Checked {
    type Value<'a> = (Cursor<'a>, &'a str);

    fn read<'a>(&self, at: &Cursor<'a>) -> Option<(Cursor<'a>, &'a str)> {
        Some((at.clone(), at.text()?))
    }
}

/// Permission bits of a socket: to connect is to write, so no other bits mean anything.
pub(super) struct SocketMode;

impl Kind for SocketMode {
    type Value<'a> = u32;

    fn read(&self, at: &Cursor<'_>) -> Option<u32> {
        at.node.as_str().and_then(mode).or_else(|| at.reject("must be an octal mode in quotes from \"0600\" to \"0666\" with read and write for the owner, like \"0660\""))
    }
}

fn mode(text: &str) -> Option<u32> {
    let octal = (3..=4).contains(&text.len()) && text.bytes().all(|byte| matches!(byte, b'0'..=b'7'));
    let mode = u32::from_str_radix(text, 8).ok().filter(|_| octal)?;
    (mode & 0o600 == 0o600 && mode & !0o666 == 0).then_some(mode)
}

/// A duration from one second to this one.
pub(super) struct TimeSpan(pub(super) Duration);

impl TimeSpan {
    pub(super) const RUN: Self = Self(Duration::from_secs(24 * 3600));
    pub(super) const AGE: Self = Self(Duration::from_secs(8760 * 3600));
}

impl Kind for TimeSpan {
    type Value<'a> = Duration;

    fn read(&self, at: &Cursor<'_>) -> Option<Duration> {
        let Some(text) = at.node.as_str().or_else(|| at.node.as_number()) else {
            return at.reject("must be a duration such as `30s`, `10m` or `1h30m`");
        };
        let parsed = duration::parse_within(text, Duration::from_secs(1)..=self.0);
        parsed.map_or_else(
            |error| at.reject(format!("must be a duration such as `30s`, `10m` or `1h30m`: {error}")),
            Some,
        )
    }
}

/// A number of bytes above zero, and less than this one.
pub(super) struct Size(pub(super) u64);

impl Size {
    /// As much as 32 bits hold.
    pub(super) const MOST: Self = Self(4 << 30);
}

impl Kind for Size {
    type Value<'a> = NonZeroUsize;

    fn read(&self, at: &Cursor<'_>) -> Option<NonZeroUsize> {
        let expected = "must be a size such as `64Mi`, `1Gi` or `500k`";
        let Some(text) = at.node.as_str().or_else(|| at.node.as_number()) else {
            return at.reject(expected);
        };
        match size::parse(text) {
            Err(error) => at.reject(format!("{expected}: {error}")),
            Ok(bytes) => {
                let bytes = usize::try_from(bytes).ok().filter(|_| bytes < self.0);
                bytes.and_then(NonZeroUsize::new).or_else(|| {
                    at.reject(format!("must be more than 0 and less than {}", size::text(self.0)))
                })
            }
        }
    }
}

pub(super) struct Boolean;

impl Kind for Boolean {
    type Value<'a> = bool;

    fn read(&self, at: &Cursor<'_>) -> Option<bool> {
        at.boolean()
    }
}

/// A whole number from 1 to this one.
pub(super) struct Count(pub(super) u32);

impl Kind for Count {
    type Value<'a> = NonZeroUsize;

    fn read(&self, at: &Cursor<'_>) -> Option<NonZeroUsize> {
        let count = at.node.as_number().and_then(|number| number.parse::<NonZeroU32>().ok());
        let count = count.filter(|count| count.get() <= self.0);
        let count = count.and_then(|count| NonZeroUsize::try_from(count).ok());
        count.or_else(|| at.reject(format!("must be a whole number from 1 to {}", self.0)))
    }
}

/// A uid or gid. The highest number identifies none.
pub(super) struct Id;

impl Kind for Id {
    type Value<'a> = u32;

    fn read(&self, at: &Cursor<'_>) -> Option<u32> {
        let id = at.node.as_number().and_then(|number| number.parse().ok()).filter(|id| *id != u32::MAX);
        id.or_else(|| at.reject("must be a number from 0 to 4294967294"))
    }
}

/// One of these strings. An empty one is accepted and not documented.
pub(super) struct Enumeration<T: 'static>(pub(super) &'static [(&'static str, T)]);

impl<T: Copy + PartialEq> Kind for Enumeration<T> {
    type Value<'a> = T;

    fn read(&self, at: &Cursor<'_>) -> Option<T> {
        let text = at.text()?;
        let found = self.0.iter().find(|(name, _)| *name == text).map(|(_, value)| *value);
        found.or_else(|| {
            let names = self.0.iter().filter(|(name, _)| !name.is_empty());
            match names.map(|(name, _)| format!("`{name}`")).collect::<Vec<_>>().as_slice() {
                [only] => at.reject(format!("must be {only}")),
                names => at.reject(format!("must be one of {}, not `{text}`", names.join(", "))),
            }
        })
    }
}

/// A list. What is wrong with an item is reported, and the item is left out.
pub(super) struct ListOf<K>(pub(super) K);

impl<K: Kind> Kind for ListOf<K> {
    type Value<'a> = Vec<K::Value<'a>>;

    fn read<'a>(&self, at: &Cursor<'a>) -> Option<Vec<K::Value<'a>>> {
        Some(at.items()?.iter().filter_map(|item| self.0.read(item)).collect())
    }
}

pub(super) type Map = &'static Section;

impl Kind for Map {
    type Value<'a> = Cursor<'a>;

    fn read<'a>(&self, at: &Cursor<'a>) -> Option<Cursor<'a>> {
        at.fields(self.names)
    }
}

/// A map, or a list of maps that is not empty.
pub(super) struct MapOrMaps(pub(super) Map);

impl Kind for MapOrMaps {
    type Value<'a> = Vec<Cursor<'a>>;

    fn read<'a>(&self, at: &Cursor<'a>) -> Option<Vec<Cursor<'a>>> {
        match at.node.as_sequence() {
            None => self.0.read(at).map(|map| vec![map]),
            Some([]) => at.reject("must not be an empty list"),
            Some(_) => ListOf(self.0).read(at),
        }
    }
}

#[cfg(test)]
pub(super) mod testing;
#[cfg(test)]
mod tests;
