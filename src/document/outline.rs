//! Where each part of a YAML document is in its text, for edits that leave the rest as it is.

use std::ops::Range;

use granit_parser::{Event, Parser, ScalarStyle, Span, StrInput};

use super::{MAX_DEPTH, text};

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
        let mut reader = Reader { events, text: body, mark: whole.len() - body.len() };
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

    /// Whether this is a map.
    pub fn is_mapping(&self) -> bool {
        matches!(self.parts, Parts::Mapping(_))
    }
}

struct Reader<'a> {
    events: Parser<'a, StrInput<'a>>,
    text: &'a str,
    /// The size of the byte order mark, which is not in `text`.
    mark: usize,
}

impl<'a> Reader<'a> {
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
mod tests {
    use super::*;

    fn found<'a>(text: &'a str, path: &[&str]) -> &'a str {
        let outline = Outline::of(text.as_bytes()).unwrap();
        let part = path.iter().fold(&outline, |part, key| match key.parse::<usize>() {
            Ok(index) => &part.items()[index],
            Err(_) => part.get(key).unwrap(),
        });
        &text[part.range.clone()]
    }

    const BLOCK: &str = "# head
users:
- name: é   # a comment
  user:
    exec:
      command: aws
      args:
      - eks
      - |
        two
        lines

      env:   # nothing
    # after
    other: {a: [1, 2], b: }
- name: second
";

    #[test]
    fn each_part_is_found_without_the_space_and_the_comments_behind_it() {
        let exec =
            "command: aws\n      args:\n      - eks\n      - |\n        two\n        lines\n\n      env:";
        assert_eq!(found(BLOCK, &["users", "0", "user", "exec"]), exec);
        assert_eq!(found(BLOCK, &["users", "0", "name"]), "é");
        assert_eq!(found(BLOCK, &["users", "0", "user", "other"]), "{a: [1, 2], b: }");
        assert_eq!(found(BLOCK, &["users", "0", "user", "other", "a"]), "[1, 2]");
        assert_eq!(found(BLOCK, &["users", "1"]), "name: second");
        assert_eq!(found(BLOCK, &["users", "0", "user", "exec", "env"]), "");
        let outline = Outline::of(BLOCK.as_bytes()).unwrap();
        let exec = outline.get("users").unwrap().items()[0].get("user").unwrap().get("exec").unwrap();
        assert_eq!((exec.column, exec.is_block), (6, true));
    }

    #[test]
    fn json_and_a_text_with_a_byte_order_mark_have_outlines() {
        let json = "\u{feff}{\"users\": [{\"name\": \"u\", \"user\": {\"exec\": {\"command\": \"x\"}}}]}\r\n";
        assert_eq!(found(json, &["users", "0", "user", "exec"]), "{\"command\": \"x\"}");
        assert_eq!(found(json, &["users"]), &json[13..json.len() - 3]);
    }

    #[test]
    fn aliases_and_quoted_texts_are_found_whole() {
        let text = "a: &x {b: c}\nd: *x\ne: 'it''s'\nf: \"\\n\" # g\n";
        assert_eq!(found(text, &["d"]), "*x");
        assert_eq!(found(text, &["e"]), "'it''s'");
        assert_eq!(found(text, &["f"]), "\"\\n\"");
    }
}
