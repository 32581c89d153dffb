//! What a key of the configuration is: its name, the kind of its value, and what applies without it. `table` declares every
//! key, and the readers come from there.

use std::{
    num::{NonZeroU32, NonZeroUsize},
    time::Duration,
};

use super::reader::Cursor;

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

/// A whole number above 0 with its unit: `30s`, `10m`, `12h`. At most this, which is a whole number of hours.
pub(super) struct TimeSpan(pub(super) Duration);

impl TimeSpan {
    /// How long a plugin runs.
    pub(super) const RUN: Self = Self(Duration::from_secs(24 * 3600));
    /// How old a credential becomes.
    pub(super) const AGE: Self = Self(Duration::from_secs(8760 * 3600));
}

impl Kind for TimeSpan {
    type Value<'a> = Duration;

    fn read(&self, at: &Cursor<'_>) -> Option<Duration> {
        match at.node.as_str().and_then(seconds) {
            None => at.reject("must be a whole number above 0 with its unit, like `30s`, `10m` or `12h`"),
            Some(long) if long > self.0 => at.reject(format!("must be at most {}h", self.0.as_secs() / 3600)),
            found => found,
        }
    }
}

fn seconds(text: &str) -> Option<Duration> {
    let unit = text.chars().next_back()?;
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        _ => return None,
    };
    let digits = text.strip_suffix(unit)?;
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None; // `parse` takes a sign
    }
    let count: u32 = digits.parse().ok().filter(|count| *count > 0)?;
    Some(Duration::from_secs(u64::from(count) * seconds))
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

/// A map with these keys.
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
