//! JSON, read by `serde_json` into the tree.

use std::{cell::Cell, collections::HashSet, fmt};

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::node::{Key, MAX_DEPTH, MAX_NODES, Node, ParseError, ParseErrorKind, Position, Value, text};

/// Reads exactly one JSON value. Its nodes have no positions; errors have.
pub fn json(bytes: &[u8]) -> Result<Node, ParseError> {
    within(bytes, MAX_NODES)
}

/// As [`json`], for at most `max` keys and values.
pub(super) fn within(bytes: &[u8], max: usize) -> Result<Node, ParseError> {
    let text = text(bytes)?;
    if text.trim_ascii().is_empty() {
        return Err(ParseErrorKind::Empty.at(Position::new(1, 1)));
    }
    let (refused, left) = (Cell::new(None), Cell::new(max));
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let node = Tree { refused: &refused, left: &left, max, depth: 0 }
        .deserialize(&mut deserializer)
        .map_err(|error| {
            // The library's message quotes the document; only its place is taken.
            refused.get().unwrap_or(ParseErrorKind::Syntax).at(Position::new(error.line(), error.column()))
        })?;
    deserializer
        .end()
        .map_err(|error| ParseErrorKind::TextAfter.at(Position::new(error.line(), error.column())))?;
    Ok(node)
}

/// Builds the node at `depth`. Its own refusals go through `refused`: an error of serde is a message.
#[derive(Clone, Copy)]
struct Tree<'a> {
    refused: &'a Cell<Option<ParseErrorKind>>,
    /// How many keys and values may follow.
    left: &'a Cell<usize>,
    max: usize,
    depth: usize,
}

impl Tree<'_> {
    fn refuse<E: Error>(self, kind: ParseErrorKind) -> E {
        self.refused.set(Some(kind));
        E::custom("refused")
    }

    fn count<E: Error>(self) -> Result<(), E> {
        let left = self.left.get().checked_sub(1);
        self.left.set(left.ok_or_else(|| self.refuse(ParseErrorKind::TooMany(self.max)))?);
        Ok(())
    }

    fn inner<E: Error>(self) -> Result<Self, E> {
        if self.depth == MAX_DEPTH {
            return Err(self.refuse(ParseErrorKind::TooDeep));
        }
        Ok(Self { depth: self.depth + 1, ..self })
    }
}

impl<'de> DeserializeSeed<'de> for Tree<'_> {
    type Value = Node;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        self.count()?;
        deserializer.deserialize_any(self).map(|value| Node { at: Position::UNKNOWN, value })
    }
}

impl<'de> Visitor<'de> for Tree<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.to_string()))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.to_string()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(Value::Number(value.to_string()))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let inner = self.inner()?;
        let mut sequence = Vec::new();
        while let Some(node) = items.next_element_seed(inner)? {
            sequence.push(node);
        }
        Ok(Value::Sequence(sequence))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let inner = self.inner()?;
        let (mut mapping, mut seen) = (Vec::new(), HashSet::new());
        while let Some(name) = entries.next_key::<String>()? {
            self.count()?;
            if !seen.insert(name.clone()) {
                return Err(self.refuse(ParseErrorKind::DuplicateKey));
            }
            mapping.push((Key { name, at: Position::UNKNOWN }, entries.next_value_seed(inner)?));
        }
        Ok(Value::Mapping(mapping))
    }
}
