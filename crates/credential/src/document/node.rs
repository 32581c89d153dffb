//! The tree.

use std::fmt;

use serde::{Serialize, Serializer};
use serde_json::Number;

use super::Position;

/// A value and its position. Its `Debug` shows kinds, lengths and positions only.
#[derive(Clone)]
pub struct Node {
    /// Where it starts.
    pub at: Position,
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
#[derive(Clone)]
pub struct Key {
    /// Its text.
    pub name: String,
    /// Where it starts.
    pub at: Position,
}

/// A value that is not in a file.
impl From<Value> for Node {
    fn from(value: Value) -> Self {
        Self { at: Position::UNKNOWN, value }
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

    /// Whether this is null.
    pub fn is_null(&self) -> bool {
        matches!(self.value, Value::Null)
    }

    /// What this is, with its article, for a message.
    pub fn kind(&self) -> &'static str {
        match self.value {
            Value::Null => "null",
            Value::Bool(_) => "a boolean",
            Value::Number(_) => "a number",
            Value::String(_) => "a string",
            Value::Sequence(_) => "a list",
            Value::Mapping(_) => "a map",
        }
    }

    /// The same value as JSON. A number that JSON cannot hold becomes text.
    pub fn to_json(&self) -> serde_json::Value {
        use serde_json::Value as Json;
        match &self.value {
            Value::Null => Json::Null,
            Value::Bool(value) => Json::Bool(*value),
            Value::Number(text) => json_number(text).map_or_else(|| Json::String(text.clone()), Json::Number),
            Value::String(text) => Json::String(text.clone()),
            Value::Sequence(items) => items.iter().map(Self::to_json).collect(),
            Value::Mapping(entries) => {
                entries.iter().map(|(key, node)| (key.name.clone(), node.to_json())).collect()
            }
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

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{} {:?}", self.at.line, self.at.column, self.value)
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("Null"),
            Self::Bool(_) => f.write_str("Bool"),
            Self::Number(text) => write!(f, "Number({} bytes)", text.len()),
            Self::String(text) => write!(f, "String({} bytes)", text.len()),
            Self::Sequence(items) => f.debug_list().entries(items).finish(),
            Self::Mapping(entries) => f.debug_map().entries(entries.iter().map(|(k, v)| (k, v))).finish(),
        }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{} Key({} bytes)", self.at.line, self.at.column, self.name.len())
    }
}
