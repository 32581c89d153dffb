//! The tree, places in it, and why a document is refused.

use std::{fmt, ops::Range};

use serde::{Serialize, Serializer};
use serde_json::Number;

/// Collections inside each other, at most.
pub(super) const MAX_DEPTH: usize = 64;
/// Keys and values of a file, at most: a kubeconfig with ten thousand clusters. Each takes about a hundred bytes of memory.
pub(super) const MAX_NODES: usize = 400_000;
/// Keys and values of the output of a plugin, at most.
pub(super) const MAX_OUTPUT_NODES: usize = 10_000;

/// Keys and values that aliases may add to a document. Each takes about a hundred bytes of memory.
pub(super) const MAX_ADDED: usize = 200_000;
/// Bytes of text that aliases may add to a document.
pub(super) const MAX_ADDED_BYTES: usize = 4 << 20;

/// A place in a document: 1-based, columns in characters. Zero for what is not in one.
#[derive(Clone, Copy, Debug, Default, derive_more::Display, Eq, Ord, PartialEq, PartialOrd)]
#[display("line {line}, column {column}")]
pub struct Position {
    /// Line.
    pub line: u32,
    /// Column.
    pub column: u32,
}

impl Position {
    /// An unknown position.
    pub const UNKNOWN: Self = Self { line: 0, column: 0 };

    /// Whether the position is known.
    pub const fn is_known(self) -> bool {
        self.line != 0
    }

    /// The position in parentheses after a blank, for the end of a message; empty if it is not known.
    pub fn suffix(self) -> String {
        if self.is_known() { format!(" ({self})") } else { String::new() }
    }

    pub(crate) fn new(line: usize, column: usize) -> Self {
        let number = |value| u32::try_from(value).unwrap_or(u32::MAX);
        Self { line: number(line), column: number(column) }
    }

    pub(super) fn after(text: &str) -> Self {
        let last = text.rsplit('\n').next().unwrap_or_default();
        Self::new(text.matches('\n').count() + 1, last.chars().count() + 1)
    }
}

/// Why a document is not accepted. It never contains text of the document, which may be a secret.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{kind}{}", at.suffix())]
pub struct ParseError {
    /// What is wrong.
    pub kind: ParseErrorKind,
    /// Where.
    pub at: Position,
}

/// What is wrong with a document.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ParseErrorKind {
    /// `*name` where aliases are not followed, or without a finished anchor.
    #[error("an alias is not accepted here")]
    Alias,
    /// The same key twice in one map.
    #[error("a key appears twice in one map")]
    DuplicateKey,
    /// Nothing but blanks and comments.
    #[error("the document is empty")]
    Empty,
    /// A key that is a list, a map or null.
    #[error("a key must be a string")]
    Key,
    /// `<<` where merges are not followed, or with a value that is not a map.
    #[error("a merge key (`<<`) is not accepted here")]
    MergeKey,
    /// Bytes that are not UTF-8.
    #[error("the document is not UTF-8")]
    NotUtf8,
    /// A second document after the first.
    #[error("expected one document, found a second one")]
    SecondDocument,
    /// A syntax error, with a fixed text that names the rule: it never quotes the document.
    #[error("the document is not well-formed: {0}")]
    Syntax(&'static str),
    /// `!tag`.
    #[error("a YAML tag is not accepted here")]
    Tag,
    /// Something after the end of the document.
    #[error("expected the end of the document, found more text")]
    TextAfter,
    /// Aliases that make the document too large.
    #[error(
        "anchors and aliases add more than {} keys and values, or more than {} MiB of text; write fewer of them",
        MAX_ADDED,
        MAX_ADDED_BYTES >> 20
    )]
    TooBig,
    /// More keys and values than this.
    #[error("the document has more than {0} keys and values")]
    TooMany(usize),
    /// Collections that are nested too deeply.
    #[error("lists and maps are nested more than {max} deep", max = MAX_DEPTH)]
    TooDeep,
}

impl ParseErrorKind {
    pub(super) const fn at(self, at: Position) -> ParseError {
        ParseError { kind: self, at }
    }
}

/// The text without its byte order mark, and the size of that.
pub(super) fn text(bytes: &[u8]) -> Result<(&str, usize), ParseError> {
    let text = str::from_utf8(bytes).map_err(|error| {
        let valid = bytes.get(..error.valid_up_to()).unwrap_or_default();
        ParseErrorKind::NotUtf8.at(Position::after(&String::from_utf8_lossy(valid)))
    })?;
    let body = text.strip_prefix('\u{feff}').unwrap_or(text);
    Ok((body, text.len() - body.len()))
}

/// A value and its position. Its `Debug` shows its kind and its position only.
#[derive(Clone, derive_more::Debug)]
#[debug("{}:{} {}", at.line, at.column, value.kind())]
pub struct Node {
    /// Where it starts.
    pub at: Position,
    /// Its bytes in the text, from its first character to behind its last one, without the line break. Those of an alias
    /// are its own, and those of its parts are where they are written. Empty if it is not in a text.
    pub range: Range<usize>,
    /// What it is.
    pub value: Value,
}

/// What a node is.
#[derive(Clone)]
pub enum Value {
    /// Null, or nothing at all.
    Null,
    /// A boolean.
    Bool(bool),
    /// A number: integers in decimal, other numbers as written.
    Number(String),
    /// Text.
    String(String),
    /// A list.
    Sequence(Vec<Node>),
    /// A map in the order of the document. No key is there twice.
    Mapping(Vec<(Key, Node)>),
}

/// A key of a map and its position.
#[derive(Clone, derive_more::Debug)]
#[debug("{}:{} a key", at.line, at.column)]
pub struct Key {
    /// Its text.
    pub name: String,
    /// Where it starts.
    pub at: Position,
}

/// A value that is not in a file.
impl From<Value> for Node {
    fn from(value: Value) -> Self {
        Self { at: Position::UNKNOWN, range: 0..0, value }
    }
}

impl Node {
    /// The value of `key`, when this is a map that has it.
    pub fn get(&self, key: &str) -> Option<&Node> {
        self.as_mapping()?.iter().find_map(|(name, node)| (name.name == key).then_some(node))
    }

    /// The text, when this is text.
    pub fn as_str(&self) -> Option<&str> {
        if let Value::String(text) = &self.value { Some(text) } else { None }
    }

    /// The boolean, when this is one.
    pub fn as_bool(&self) -> Option<bool> {
        if let Value::Bool(value) = self.value { Some(value) } else { None }
    }

    /// The number as text, when this is a number.
    pub fn as_number(&self) -> Option<&str> {
        if let Value::Number(number) = &self.value { Some(number) } else { None }
    }

    /// The items, when this is a list.
    pub fn as_sequence(&self) -> Option<&[Node]> {
        if let Value::Sequence(items) = &self.value { Some(items) } else { None }
    }

    /// The entries, when this is a map.
    pub fn as_mapping(&self) -> Option<&[(Key, Node)]> {
        if let Value::Mapping(entries) = &self.value { Some(entries) } else { None }
    }

    /// Whether this is a list or a map whose parts are on lines of `text`, and not between brackets.
    pub fn is_block(&self, text: &str) -> bool {
        let is_flow = || text.get(self.range.start..).is_none_or(|text| text.starts_with(['{', '[', '*']));
        matches!(self.value, Value::Sequence(_) | Value::Mapping(_)) && !is_flow()
    }

    /// The number of characters before it on its line.
    pub fn indentation(&self) -> usize {
        self.at.column.saturating_sub(1) as usize
    }

    /// Whether this is null.
    pub fn is_null(&self) -> bool {
        matches!(self.value, Value::Null)
    }

    /// The same value as JSON. A number that JSON cannot hold becomes text.
    pub fn to_json(&self) -> serde_json::Value {
        // Not reached: every key is text.
        serde_json::to_value(self).unwrap_or_default()
    }
}

impl Value {
    /// What this is, with its article, for a message.
    pub fn kind(&self) -> &'static str {
        match self {
            Value::Null => "null",
            Value::Bool(_) => "a boolean",
            Value::Number(_) => "a number",
            Value::String(_) => "a string",
            Value::Sequence(_) => "a list",
            Value::Mapping(_) => "a map",
        }
    }
}

/// As JSON has it; see [`Node::to_json`].
impl Serialize for Node {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.value {
            Value::Null => serializer.serialize_unit(),
            Value::Bool(value) => serializer.serialize_bool(*value),
            Value::Number(text) => match json_number(text) {
                Some(number) => number.serialize(serializer),
                None => serializer.serialize_str(text),
            },
            Value::String(text) => serializer.serialize_str(text),
            Value::Sequence(items) => serializer.collect_seq(items),
            Value::Mapping(entries) => {
                serializer.collect_map(entries.iter().map(|(key, node)| (&key.name, node)))
            }
        }
    }
}

fn json_number(text: &str) -> Option<Number> {
    let signed = text.parse::<i64>().map(Number::from);
    let integer = signed.or_else(|_| text.parse::<u64>().map(Number::from)).ok();
    integer.or_else(|| Number::from_f64(text.parse().ok()?))
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind())
    }
}
