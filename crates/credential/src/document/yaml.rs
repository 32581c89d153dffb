//! YAML, built into the tree from the parser's events. A plain scalar means what it does to Kubernetes: YAML 1.1.

use std::{
    collections::{HashMap, HashSet},
    ops::Range,
};

use granit_parser::{ErrorKind, Event, Marker, Parser, ScalarStyle, ScanError, Span, StrInput, Tag};

use super::node::{
    Key, MAX_ADDED, MAX_ADDED_BYTES, MAX_DEPTH, MAX_NODES, MAX_OUTPUT_NODES, Node, ParseError,
    ParseErrorKind, Position, Value, text,
};

/// Whose document it is, and so what it may have.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Aliases {
    /// Refuse `*alias`, `<<` and `!!str`: the output of a plugin needs none of them. It is small, too.
    Refuse,
    /// Resolve them, within bounds: people write kubeconfigs and configs.
    Follow,
}

/// Reads exactly one YAML document, of which JSON is a part; empty ones around it (a trailing `---`) do not count.
pub fn yaml(bytes: &[u8], aliases: Aliases) -> Result<Node, ParseError> {
    let options = granit_parser::options! {
        emit_comments: false,
        flow_nesting_limit: MAX_DEPTH,
        block_nesting_limit: MAX_DEPTH,
    };
    let (text, mark) = text(bytes)?;
    let events = Parser::new_from_str_with_options(text, options);
    let max = if aliases == Aliases::Refuse { MAX_OUTPUT_NODES } else { MAX_NODES };
    Reader {
        events,
        text,
        mark,
        aliases,
        anchors: HashMap::new(),
        added: Size::default(),
        documents: 0,
        max,
        left: max,
    }
    .document()
}

struct Reader<'a> {
    events: Parser<'a, StrInput<'a>>,
    text: &'a str,
    /// The size of the byte order mark, which is not in `text`.
    mark: usize,
    aliases: Aliases,
    /// Finished nodes only: an alias within its anchor is not found.
    anchors: HashMap<usize, (Node, Size)>,
    /// What anchors and aliases take besides.
    added: Size,
    documents: usize,
    max: usize,
    /// How many keys and values may follow.
    left: usize,
}

impl<'a> Reader<'a> {
    fn document(mut self) -> Result<Node, ParseError> {
        let mut found = None;
        loop {
            match self.next()? {
                (Event::StreamStart | Event::DocumentStart(..) | Event::DocumentEnd, _) => {}
                (Event::StreamEnd, _) => break,
                (Event::Scalar(_, ScalarStyle::Plain, 0, None), span) if span.is_empty() => {}
                (_, span) if found.is_some() => {
                    return Err(ParseErrorKind::SecondDocument.at(position(&span.start)));
                }
                (event, span) => {
                    found = Some(self.node(event, &span, 0)?);
                    self.documents += 1;
                }
            }
        }
        found.ok_or(ParseErrorKind::Empty.at(Position::new(1, 1)))
    }

    fn next(&mut self) -> Result<(Event<'a>, Span), ParseError> {
        match self.events.next_event() {
            Some(next) => next.map_err(|error| self.refusal(&error)),
            None => Ok((Event::StreamEnd, Span::default())),
        }
    }

    /// Only the kind and the place: the library's messages quote the document.
    fn refusal(&self, error: &ScanError) -> ParseError {
        let kind = match error.kind() {
            ErrorKind::UnknownAnchor => ParseErrorKind::Alias,
            ErrorKind::UndeclaredTagHandle => ParseErrorKind::Tag,
            ErrorKind::RecursionLimitExceeded => ParseErrorKind::TooDeep,
            ErrorKind::ExpectedDocumentStart if self.documents > 0 => ParseErrorKind::TextAfter,
            kind => ParseErrorKind::Syntax(broken_rule(kind)),
        };
        kind.at(position(error.marker()))
    }

    /// The node that `event` starts, inside of `depth` collections.
    fn node(&mut self, event: Event<'a>, span: &Span, depth: usize) -> Result<Node, ParseError> {
        let at = position(&span.start);
        self.left = self.left.checked_sub(1).ok_or(ParseErrorKind::TooMany(self.max).at(at))?;
        let range = self.range(span);
        let (value, end, anchor) = match event {
            Event::Alias(anchor) => return Ok(Node { range, ..self.alias(anchor, at, depth)? }),
            Event::Scalar(text, style, anchor, tag) => {
                (self.scalar(&text, style, tag.as_deref(), span)?, range.end, anchor)
            }
            Event::SequenceStart(_, _, Some(_)) | Event::MappingStart(_, _, Some(_)) => {
                return Err(ParseErrorKind::Tag.at(at));
            }
            Event::SequenceStart(..) | Event::MappingStart(..) if depth == MAX_DEPTH => {
                return Err(ParseErrorKind::TooDeep.at(at));
            }
            Event::SequenceStart(_, anchor, _) => {
                let (items, end) = self.sequence(depth + 1)?;
                (Value::Sequence(items), end, anchor)
            }
            Event::MappingStart(_, anchor, _) => {
                let (entries, end) = self.mapping(depth + 1)?;
                (Value::Mapping(entries), end, anchor)
            }
            _ => return Err(ParseErrorKind::Syntax("expected a value").at(at)),
        };
        let node = Node { at, range: range.start..end.max(range.start), value };
        if anchor != 0 && self.aliases == Aliases::Follow {
            let size = Size::of(&node);
            self.added.spend(&size, at)?;
            self.anchors.insert(anchor, (node.clone(), size));
        }
        Ok(node)
    }

    /// The bytes of an event. A block scalar ends behind its line break, and nothing where the next token begins.
    fn range(&self, span: &Span) -> Range<usize> {
        // The parser of a text knows them always.
        let bytes = span.byte_range().unwrap_or_default();
        let text = self.text.get(bytes.clone()).unwrap_or_default().trim_end_matches(['\n', '\r', ' ']);
        self.mark + bytes.start..self.mark + bytes.start + text.len()
    }

    /// The end of a collection in brackets. The parser ends a block where the next token begins, so its last part counts.
    fn end(&self, span: &Span, last: usize) -> usize {
        let is_flow = span.slice(self.text).is_some_and(|text| text.ends_with(['}', ']']));
        if is_flow { self.range(span).end } else { last }
    }

    fn scalar(
        &self,
        text: &str,
        style: ScalarStyle,
        tag: Option<&Tag>,
        span: &Span,
    ) -> Result<Value, ParseError> {
        match tag {
            None if style == ScalarStyle::Plain => Ok(plain(text)),
            None => Ok(Value::String(text.to_owned())),
            Some(tag) if self.aliases == Aliases::Follow && tag.is_yaml_core_schema_tag("str") => {
                // The parser puts `~` where there is nothing.
                let nothing = style == ScalarStyle::Plain && span.is_empty();
                Ok(Value::String(if nothing { String::new() } else { text.to_owned() }))
            }
            Some(_) => Err(ParseErrorKind::Tag.at(position(&span.start))),
        }
    }

    /// The items, and where the list ends.
    fn sequence(&mut self, depth: usize) -> Result<(Vec<Node>, usize), ParseError> {
        let (mut items, mut end) = (Vec::new(), 0);
        loop {
            let (event, span) = self.next()?;
            if matches!(event, Event::SequenceEnd) {
                return Ok((items, self.end(&span, end)));
            }
            let item = self.node(event, &span, depth)?;
            end = item.range.end;
            items.push(item);
        }
    }

    /// The entries, and where the map ends.
    fn mapping(&mut self, depth: usize) -> Result<(Vec<(Key, Node)>, usize), ParseError> {
        let (mut entries, mut seen, mut merged, mut end) = (Vec::new(), HashSet::new(), None, 0);
        loop {
            let (event, span) = self.next()?;
            if matches!(event, Event::MappingEnd) {
                end = self.end(&span, end);
                break;
            }
            let at = position(&span.start);
            let merge = matches!(&event, Event::Scalar(text, ScalarStyle::Plain, _, None) if text == "<<");
            if merge && self.aliases == Aliases::Refuse {
                return Err(ParseErrorKind::MergeKey.at(at));
            }
            let key = self.node(event, &span, depth)?;
            let key_end = key.range.end;
            let key = key_of(key)?;
            if !seen.insert(key.name.clone()) {
                return Err(ParseErrorKind::DuplicateKey.at(at));
            }
            let (event, span) = self.next()?;
            let mut node = self.node(event, &span, depth)?;
            if node.range.is_empty() {
                // Nothing is written there: it is behind the colon of its key.
                let colon = self.text.get(key_end - self.mark..).and_then(|rest| rest.find(':'));
                let at = colon.map_or(node.range.start, |colon| key_end + colon + 1);
                node.range = at..at;
            }
            end = node.range.end;
            if merge {
                merged = Some(sources(node)?);
            } else {
                entries.push((key, node));
            }
        }
        // What the map itself says wins over a merge, and an earlier merge over a later one.
        seen.remove("<<");
        for (key, node) in merged.into_iter().flatten() {
            if seen.insert(key.name.clone()) {
                entries.push((key, node));
            }
        }
        Ok((entries, end))
    }

    fn alias(&mut self, anchor: usize, at: Position, depth: usize) -> Result<Node, ParseError> {
        if self.aliases == Aliases::Refuse {
            return Err(ParseErrorKind::Alias.at(at));
        }
        let (node, size) = self.anchors.get(&anchor).ok_or(ParseErrorKind::Alias.at(at))?;
        if depth + size.height > MAX_DEPTH {
            return Err(ParseErrorKind::TooDeep.at(at));
        }
        self.added.spend(size, at)?;
        Ok(node.clone())
    }
}

/// What a tree takes.
#[derive(Default)]
struct Size {
    nodes: usize,
    bytes: usize,
    /// Collections inside each other.
    height: usize,
}

impl Size {
    fn of(node: &Node) -> Self {
        let mut size = Self { nodes: 1, ..Self::default() };
        match &node.value {
            Value::Null | Value::Bool(_) => {}
            Value::Number(text) | Value::String(text) => size.bytes = text.len(),
            Value::Sequence(items) => items.iter().for_each(|item| size.add(&Self::of(item))),
            Value::Mapping(entries) => {
                for (key, value) in entries {
                    size.add(&Self { nodes: 1, bytes: key.name.len(), height: 0 });
                    size.add(&Self::of(value));
                }
            }
        }
        size.height += usize::from(matches!(node.value, Value::Sequence(_) | Value::Mapping(_)));
        size
    }

    fn add(&mut self, part: &Self) {
        self.nodes += part.nodes;
        self.bytes += part.bytes;
        self.height = self.height.max(part.height);
    }

    /// Counts a copy that is about to be made.
    fn spend(&mut self, copy: &Self, at: Position) -> Result<(), ParseError> {
        self.add(copy);
        let is_too_big = self.nodes > MAX_ADDED || self.bytes > MAX_ADDED_BYTES;
        if is_too_big { Err(ParseErrorKind::TooBig.at(at)) } else { Ok(()) }
    }
}

/// The entries that a merge brings, the first of each name being the one that counts.
fn sources(node: Node) -> Result<Vec<(Key, Node)>, ParseError> {
    let maps = if let Value::Sequence(items) = node.value { items } else { vec![node] };
    let mut all = Vec::new();
    for map in maps {
        let Value::Mapping(entries) = map.value else { return Err(ParseErrorKind::MergeKey.at(map.at)) };
        all.extend(entries);
    }
    Ok(all)
}

/// A scalar key as Kubernetes names it: `y` is `true`, `0x10` is `16`.
fn key_of(node: Node) -> Result<Key, ParseError> {
    let name = match node.value {
        Value::String(text) | Value::Number(text) => text,
        Value::Bool(value) => value.to_string(),
        Value::Null | Value::Sequence(_) | Value::Mapping(_) => return Err(ParseErrorKind::Key.at(node.at)),
    };
    Ok(Key { name, at: node.at })
}

/// What the parser found, in words of this module, because the library may quote the document.
fn broken_rule(kind: &ErrorKind) -> &'static str {
    match kind {
        ErrorKind::UnexpectedEofFlowMapping
        | ErrorKind::UnexpectedEofImplicitFlowMapping
        | ErrorKind::UnclosedFlowCollection { open: '{' } => {
            "a map that begins with `{` does not end with `}`"
        }
        ErrorKind::UnexpectedEofFlowSequence | ErrorKind::UnclosedFlowCollection { .. } => {
            "a list that begins with `[` does not end with `]`"
        }
        ErrorKind::ExpectedFlowMappingSeparator => "in a map in braces, `,` or `}` is missing",
        ErrorKind::ExpectedFlowSequenceSeparator => "in a list in brackets, `,` or `]` is missing",
        ErrorKind::MisplacedFlowCollectionEnd | ErrorKind::MismatchedFlowCollectionEnd { .. } => {
            "a closing bracket or brace does not belong to the opening one"
        }
        ErrorKind::UnclosedQuotedScalar
        | ErrorKind::DocumentIndicatorInQuotedScalar
        | ErrorKind::InvalidQuotedScalarIndent => "a quote is not closed, or the text in it is not indented",
        ErrorKind::InvalidTrailingSingleQuotedScalar | ErrorKind::InvalidTrailingDoubleQuotedScalar => {
            "there is text behind a closing quote"
        }
        ErrorKind::UnknownQuotedScalarEscape
        | ErrorKind::InvalidQuotedScalarHexEscape
        | ErrorKind::InvalidLowSurrogateHexEscape
        | ErrorKind::InvalidLowSurrogate
        | ErrorKind::MissingLowSurrogate
        | ErrorKind::UnpairedLowSurrogate
        | ErrorKind::InvalidUnicodeEscape => "a string in quotes has an escape that is not valid",
        ErrorKind::TabNotAllowed
        | ErrorKind::TabInBlockIndentation
        | ErrorKind::TabInIndentation
        | ErrorKind::TabInPlainScalar
        | ErrorKind::TabAtBlockScalarStart => "there is a tab where only spaces are allowed",
        ErrorKind::InvalidIndentation
        | ErrorKind::InvalidFlowScalarIndent
        | ErrorKind::InvalidBlockScalarIndent
        | ErrorKind::ExpectedBlockSequenceEntry
        | ErrorKind::BlockSequenceEntryNotAllowed
        | ErrorKind::ExpectedBlockMappingKey => "the indentation does not fit the lines above",
        ErrorKind::SimpleKeyExpected | ErrorKind::InvalidSimpleKey => "a key without `:` behind it",
        ErrorKind::MappingValueNotAllowed
        | ErrorKind::MappingKeyNotAllowed
        | ErrorKind::InvalidColonPlacement
        | ErrorKind::InvalidMappingValueWhitespace
        | ErrorKind::FlowMappingValueAdjacentCollection => {
            "there is a `:` where none may be; put a value with `: ` in quotes"
        }
        ErrorKind::UnexpectedCharacter { .. }
        | ErrorKind::PlainScalarStartsWithDashFlowIndicator
        | ErrorKind::InvalidBlockEntryWhitespace => "a value begins with a character that needs quotes",
        ErrorKind::UnexpectedEof
        | ErrorKind::UnexpectedEofBlockMapping
        | ErrorKind::UnexpectedEofBlockSequence
        | ErrorKind::ExpectedNodeContent => "a value is missing",
        _ => "it breaks a rule of YAML",
    }
}

fn position(marker: &Marker) -> Position {
    Position::new(marker.line(), marker.col() + 1)
}

/// The value of an unquoted scalar. What looks like a date is text.
fn plain(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            Value::Bool(true)
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            Value::Bool(false)
        }
        ".nan" | ".NaN" | ".NAN" | ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" | "-.inf"
        | "-.Inf" | "-.INF" => Value::Number(text.to_owned()),
        _ => number(text).map_or_else(|| Value::String(text.to_owned()), Value::Number),
    }
}

fn number(text: &str) -> Option<String> {
    match text.as_bytes().first()? {
        b'.' => {
            // Unlike below, an underscore must stand between two digits here.
            let digit = |character: char| character.is_ascii_digit();
            let mut cuts = text.split('_').zip(text.split('_').skip(1));
            let separated = cuts.all(|(before, after)| before.ends_with(digit) && after.starts_with(digit));
            float(&text.replace('_', "")).filter(|_| separated)
        }
        b'0'..=b'9' | b'+' | b'-' => {
            let digits = text.replace('_', "");
            integer(&digits).or_else(|| float(&digits))
        }
        _ => None,
    }
}

/// An integer of 64 bits, signed or not, in any of the bases.
fn integer(text: &str) -> Option<String> {
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, text.get(1..)?),
        b'+' => (false, text.get(1..)?),
        _ => (false, text),
    };
    let (base, digits) = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => (16, digits.get(2..)?),
        [b'0', b'o' | b'O', ..] => (8, digits.get(2..)?),
        [b'0', b'b' | b'B', ..] => (2, digits.get(2..)?),
        [b'0', _, ..] => (8, digits.get(1..)?),
        _ => (10, digits),
    };
    // A second sign would be taken by the parser.
    if !digits.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return None;
    }
    let value = i128::from_str_radix(digits, base).ok()?;
    let value = if negative { -value } else { value };
    (i128::from(i64::MIN)..=i128::from(u64::MAX)).contains(&value).then(|| value.to_string())
}

/// `[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?`, in the range of a double.
fn float(text: &str) -> Option<String> {
    // The standard parser takes words besides, such as `inf`.
    let is_number = |byte: u8| byte.is_ascii_digit() || b"+-.eE".contains(&byte);
    (text.bytes().all(is_number) && text.parse::<f64>().is_ok_and(f64::is_finite)).then(|| text.to_owned())
}
