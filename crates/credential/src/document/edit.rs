//! Edits of a YAML document as text: one value is replaced, and everything else stays as it is, comments too.

use std::ops::Range;

use granit_parser::{Event, Parser, ScalarStyle, Span, StrInput};

use super::{
    node::{MAX_DEPTH, Node, text},
    yaml::{Aliases, yaml},
};

/// Replaces the bytes at each range of `text`, which do not overlap.
pub fn replaced(text: &str, mut edits: Vec<(Range<usize>, String)>) -> Option<String> {
    edits.sort_by_key(|(range, _)| range.start);
    let (mut result, mut done) = (String::with_capacity(text.len()), 0);
    for (range, new) in edits {
        result.push_str(text.get(done..range.start)?);
        result.push_str(&new);
        done = range.end;
    }
    result.push_str(text.get(done..)?);
    Some(result)
}

/// `block` is a value in block style, and written for the place of `part`: with its indentation, or as JSON if a value
/// between brackets or on the line of its key is replaced.
pub fn fitted(text: &str, part: &Outline, block: &str, node: &Node) -> String {
    if !part.is_block {
        return node.to_json().to_string();
    }
    let line_break = if text.contains("\r\n") { "\r\n" } else { "\n" };
    let indentation = " ".repeat(part.column);
    block.trim_end().replace('\n', &format!("{line_break}{indentation}"))
}

/// Whether `text` is a document with the same meaning as `expected`.
pub fn means(text: &str, expected: &Node) -> bool {
    yaml(text.as_bytes(), Aliases::Follow).is_ok_and(|node| node.to_json() == expected.to_json())
}

/// A part of a document, and its bytes in the text.
#[derive(Debug)]
pub struct Outline {
    /// Its bytes, from its first character to behind its last one, without the line break.
    pub range: Range<usize>,
    /// The column of the first character, from 0.
    pub column: usize,
    /// Whether its parts are on lines with more indentation, and not between brackets.
    pub is_block: bool,
    parts: Parts,
}

#[derive(Debug)]
enum Parts {
    Leaf,
    Sequence(Vec<Outline>),
    Mapping(Vec<(String, Outline)>),
}

impl Outline {
    /// The outline of the only document of `bytes`; `None`: it cannot be edited as text. `bytes` is a document that
    /// [`yaml`](super::yaml) reads.
    pub fn of(bytes: &[u8]) -> Option<Self> {
        let whole = str::from_utf8(bytes).ok()?;
        let body = text(bytes).ok()?;
        let options = granit_parser::options! {
            emit_comments: false,
            flow_nesting_limit: MAX_DEPTH,
            block_nesting_limit: MAX_DEPTH,
        };
        let events = Parser::new_from_str_with_options(body, options);
        let mut reader = OutlineReader { events, text: body, mark: whole.len() - body.len() };
        loop {
            match reader.next()? {
                (Event::StreamStart | Event::DocumentStart(..), _) => {}
                (event, span) => return reader.node(&event, &span, 0),
            }
        }
    }

    /// The value of `key`, when this is a map that has it.
    pub fn get(&self, key: &str) -> Option<&Self> {
        let Parts::Mapping(entries) = &self.parts else { return None };
        entries.iter().find_map(|(name, value)| (name == key).then_some(value))
    }

    /// The items, when this is a list.
    pub fn items(&self) -> &[Self] {
        if let Parts::Sequence(items) = &self.parts { items } else { &[] }
    }
}

struct OutlineReader<'a> {
    events: Parser<'a, StrInput<'a>>,
    text: &'a str,
    /// The size of the byte order mark, which is not in `text`.
    mark: usize,
}

impl<'a> OutlineReader<'a> {
    fn next(&mut self) -> Option<(Event<'a>, Span)> {
        self.events.next_event()?.ok()
    }

    fn node(&mut self, event: &Event<'a>, span: &Span, depth: usize) -> Option<Outline> {
        let bytes = span.byte_range()?;
        let (start, column) = (bytes.start, span.start.col());
        let is_flow = self.text.get(start..)?.starts_with(['{', '[']);
        if depth > MAX_DEPTH {
            return None;
        }
        let (parts, end) = match event {
            Event::Scalar(_, style, ..) => (Parts::Leaf, self.end_of_scalar(bytes, *style)?),
            Event::Alias(_) => (Parts::Leaf, bytes.end),
            Event::SequenceStart(..) => self.sequence(start, depth)?,
            Event::MappingStart(..) => self.mapping(start, depth)?,
            _ => return None,
        };
        let is_block = !matches!(parts, Parts::Leaf) && !is_flow;
        let end = if is_block { end } else { end.max(start) };
        Some(Outline { range: self.mark + start..self.mark + end, column, is_block, parts })
    }

    /// A block scalar ends behind its line break, and one with nothing in it where the next token begins.
    fn end_of_scalar(&self, bytes: Range<usize>, style: ScalarStyle) -> Option<usize> {
        let text = self.text.get(bytes.clone())?;
        let trimmed = match style {
            ScalarStyle::Literal | ScalarStyle::Folded => text.trim_end_matches(['\n', '\r', ' ']),
            _ => text.trim_end(),
        };
        Some(bytes.start + trimmed.len())
    }

    fn sequence(&mut self, start: usize, depth: usize) -> Option<(Parts, usize)> {
        let (mut items, mut end) = (Vec::new(), start);
        loop {
            let (event, span) = self.next()?;
            if matches!(event, Event::SequenceEnd) {
                return Some((Parts::Sequence(items), end.max(self.end_of_flow(&span)?)));
            }
            let item = self.node(&event, &span, depth + 1)?;
            end = end.max(item.range.end - self.mark);
            items.push(item);
        }
    }

    fn mapping(&mut self, start: usize, depth: usize) -> Option<(Parts, usize)> {
        let (mut entries, mut end) = (Vec::new(), start);
        loop {
            let (event, span) = self.next()?;
            if matches!(event, Event::MappingEnd) {
                return Some((Parts::Mapping(entries), end.max(self.end_of_flow(&span)?)));
            }
            let name = if let Event::Scalar(name, ..) = &event { name.to_string() } else { String::new() };
            let key = self.node(&event, &span, depth + 1)?;
            let (event, span) = self.next()?;
            let mut value = self.node(&event, &span, depth + 1)?;
            if value.range.is_empty() {
                // Nothing is written there: it is behind the colon of its key.
                let key_end = key.range.end - self.mark;
                let colon = self.text.get(key_end..)?.find(':')?;
                let at = self.mark + key_end + colon + 1;
                value.range = at..at;
            }
            end = end.max(value.range.end - self.mark);
            entries.push((name, value));
        }
    }

    /// The end of a collection in brackets. That of a block is only where the next token begins.
    fn end_of_flow(&self, span: &Span) -> Option<usize> {
        let bytes = span.byte_range()?;
        Some(if self.text.get(bytes.clone())?.ends_with(['}', ']']) { bytes.end } else { 0 })
    }
}

#[cfg(test)]
mod tests;
