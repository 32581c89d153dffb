//! Finds out from the stderr of a failed plugin whether its issuer throttles.
//!
//! `ExecCredential` has no field for that, and the text can only reduce the number of runs. Plugins quote what they
//! received in their errors, so text from a caller or a ClusterProfile says nothing about the issuer.

use std::{collections::HashMap, ops::Range, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::Value;
use zeroize::Zeroizing;

use credbroker_plugin::{IdPart, PartKind, PluginSpec, Session};

/// The words of issuers and plugins for too many requests: AWS, HTTP and Kubernetes, Entra ID, gRPC. They are
/// case-sensitive: client-go's "client-side throttling" is about the API server.
const WORDS: [&str; 6] =
    ["Throttling", "Rate exceeded", "TooManyRequests", "AADSTS90055", "AADSTS50196", "RESOURCE_EXHAUSTED"];
const STATUS: &str = "429";
const RETRY_AFTER: &str = "retry-after";

/// The issuer asked for fewer runs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Throttling {
    /// For how long, if the text names a time; at least one second.
    pub(super) retry_after: Option<Duration>,
}

/// Searches the stderr of a failed plugin for signs of throttling, but not what the plugin received from others.
pub(super) fn throttling(stderr: &str, foreign: impl FnOnce() -> ForeignTexts) -> Option<Throttling> {
    find(stderr, &[])?;
    find(stderr, &foreign().marks(stderr))
}

/// Searches `text`. The bytes of a sign must not be marked as `foreign`.
fn find(text: &str, foreign: &[bool]) -> Option<Throttling> {
    let named = || WORDS.iter().any(|word| occurrences(text, word, foreign).next().is_some());
    let status = || occurrences(text, STATUS, foreign).any(is_status);
    let unknown = || (named() || status()).then_some(Throttling { retry_after: None });
    retry_after(text, foreign).or_else(unknown)
}

/// The last `Retry-After: N`. A date, zero, or another value that is not a number of seconds is throttling without a time.
fn retry_after(text: &str, foreign: &[bool]) -> Option<Throttling> {
    let text = text.to_ascii_lowercase();
    // As a header, as JSON, or as Go prints headers: `Retry-After:[30]`.
    let values = occurrences(&text, RETRY_AFTER, foreign).filter_map(|(before, after)| {
        let rest = after.trim_start_matches(['"', '\'', ' ']).strip_prefix(':')?;
        let value = rest.trim_start_matches(['"', '\'', ' ', '[']);
        let after_number = value.trim_start_matches(|next: char| next.is_ascii_digit());
        let [rest, end] = [rest, after_number].map(|left| text.len() - left.len());
        let time = seconds(value).filter(|_| !is_marked(foreign, rest..end));
        (!is_marked(foreign, before.len()..rest)).then_some(time)
    });
    values.last().map(|retry_after| Throttling { retry_after })
}

fn is_marked(foreign: &[bool], range: Range<usize>) -> bool {
    foreign.get(range).is_some_and(|marks| marks.contains(&true))
}

/// A whole number of seconds above zero at the start of `text`.
fn seconds(text: &str) -> Option<Duration> {
    let end = text.find(|next: char| !next.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at_checked(end)?;
    if digits.is_empty() || rest.strip_prefix('s').unwrap_or(rest).starts_with(is_part) {
        return None;
    }
    let seconds = digits.parse().unwrap_or(u64::MAX); // too many digits
    (seconds > 0).then(|| Duration::from_secs(seconds))
}

/// Whether a `429` between these texts is a status, and not part of a longer number, of a time (`10:00:00,429`), or of a
/// source location (`token.go:429`, `line 429`).
fn is_status((before, after): (&str, &str)) -> bool {
    let joins = |character: char| matches!(character, '.' | ',' | ':' | '-');
    let ends_in_digit = |text: &str| text.ends_with(|last: char| last.is_ascii_digit());
    let longer = before.strip_suffix(joins).is_some_and(ends_in_digit)
        || after.strip_prefix(joins).is_some_and(|rest| rest.starts_with(|next: char| next.is_ascii_digit()));
    let last = before.rsplit(char::is_whitespace).next().unwrap_or_default();
    let place = last.strip_suffix(':').is_some_and(|file| file.contains(['.', '/']))
        || before.trim_end().ends_with("line");
    !longer && !place
}

/// The text before and after each occurrence of `word` as a whole word that has no `foreign` byte.
fn occurrences<'a>(
    text: &'a str,
    word: &'a str,
    foreign: &'a [bool],
) -> impl Iterator<Item = (&'a str, &'a str)> {
    text.match_indices(word).filter_map(move |(at, _)| {
        let (before, after) = (text.get(..at)?, text.get(at + word.len()..)?);
        let is_whole = !before.ends_with(is_part) && !after.starts_with(is_part);
        (is_whole && !is_marked(foreign, at..at + word.len())).then_some((before, after))
    })
}

fn is_part(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

/// The shortest piece of a text that is recognized: plugins shorten what they quote. Shorter ones are everywhere.
const SHORTEST: usize = 3;
/// The same of a line of base64 of certificate authorities. Such a line has a piece of three characters of almost every
/// word: with a large bundle, throttling would never be found again.
const SHORTEST_BASE64: usize = 16;
/// The bytes of all texts together that are compared. If there are more, any text may be theirs.
const MOST: usize = 512 << 10;

/// What the plugin of a run received from a caller or a ClusterProfile. Variables may be secrets, so the copies are wiped.
#[derive(derive_more::Debug, Default)]
#[debug("ForeignTexts({bytes} bytes)")]
pub struct ForeignTexts {
    /// Each with the length of its shortest piece.
    texts: Vec<(Zeroizing<Vec<u8>>, usize)>,
    bytes: usize,
}

impl ForeignTexts {
    /// The texts in a run of `spec` that has the session of a user, or none.
    pub fn of(spec: &PluginSpec, session: Option<&Session>) -> Self {
        let mut texts = Self::default();
        for part in &spec.foreign_parts() {
            texts.add_part(part, spec);
        }
        for value in session.iter().flat_map(|session| session.values()) {
            texts.add(value.as_bytes(), SHORTEST);
        }
        texts
    }

    fn add_part(&mut self, part: &IdPart<'_>, spec: &PluginSpec) {
        let (name, value) = (&*part.name, &*part.value);
        match (part.kind, name) {
            (PartKind::Cluster, b"certificate-authority-data") => {
                for line in value.split(|byte| *byte == b'\n').filter(|line| !is_boundary(line)) {
                    let is_base64 = line.len() >= SHORTEST_BASE64 && line.iter().all(|byte| is_base64(*byte));
                    self.add(line, if is_base64 { SHORTEST_BASE64 } else { SHORTEST });
                }
                // As the plugin receives it.
                self.add(STANDARD.encode(value).as_bytes(), SHORTEST_BASE64);
            }
            (PartKind::Cluster, b"config") => {
                self.add(value, SHORTEST);
                // Without its escapes, as a plugin reads it.
                self.add_json(&serde_json::from_slice(value).unwrap_or_default());
            }
            (PartKind::Variable, name) => {
                self.add(value, SHORTEST);
                let globs = [&spec.provider.caller_env, &spec.provider.profile_env];
                let text = String::from_utf8_lossy(name);
                if !globs.iter().any(|globs| globs.lists(&text)) {
                    self.add(name, SHORTEST);
                }
            }
            _ => self.add(value, SHORTEST),
        }
    }

    fn add_json(&mut self, value: &Value) {
        match value {
            Value::Null | Value::Bool(_) => {}
            Value::Number(number) => self.add(number.to_string().as_bytes(), SHORTEST),
            Value::String(text) => self.add(text.as_bytes(), SHORTEST),
            Value::Array(items) => items.iter().for_each(|item| self.add_json(item)),
            Value::Object(fields) => {
                for (name, value) in fields {
                    self.add(name.as_bytes(), SHORTEST);
                    self.add_json(value);
                }
            }
        }
    }

    /// Adds a text, as it is and with its percent-encoding decoded, once and as often as possible.
    pub(super) fn add(&mut self, text: &[u8], shortest: usize) {
        let decoded = [false, true].into_iter().filter_map(|nested| decode(text, nested));
        let decoded = decoded.map(|bytes| bytes.iter().map(|(byte, _)| *byte).collect());
        for mut form in std::iter::once(text.to_vec()).chain(decoded).map(Zeroizing::new) {
            self.bytes += form.len();
            form.make_ascii_lowercase();
            if form.len() >= shortest && self.bytes <= MOST {
                self.texts.push((form, shortest));
            }
        }
    }

    /// Marks each byte of `text` that is in a piece of these texts; if they are too many to compare, every byte.
    pub(super) fn marks(&self, text: &str) -> Vec<bool> {
        let mut marks = vec![self.bytes > MOST; text.len()];
        let plain = Zeroizing::new(text.bytes().zip(0..).collect::<Vec<_>>());
        let decoded = [false, true].into_iter().filter_map(|nested| decode(text.as_bytes(), nested));
        for view in std::iter::once(plain).chain(decoded) {
            for shortest in [SHORTEST, SHORTEST_BASE64] {
                let of_length = self.texts.iter().filter(|(_, length)| *length == shortest);
                for range in pieces(&view, text.len(), shortest, of_length.map(|(text, _)| text)) {
                    marks.iter_mut().take(range.end).skip(range.start).for_each(|mark| *mark = true);
                }
            }
        }
        marks
    }
}

/// The places of all pieces of `length` bytes that `view` shares with `texts`. A longer piece is the union of them. `view` has
/// each byte with its place in a text of `end` bytes. Each place is found once, so the time is linear.
fn pieces<'a>(
    view: &[(u8, usize)],
    end: usize,
    length: usize,
    texts: impl Iterator<Item = &'a Zeroizing<Vec<u8>>>,
) -> Vec<Range<usize>> {
    let bytes: Vec<_> = view.iter().map(|(byte, _)| byte.to_ascii_lowercase()).collect();
    let mut places: HashMap<&[u8], Vec<usize>> = HashMap::new();
    for (at, piece) in bytes.windows(length).enumerate() {
        places.entry(piece).or_default().push(at);
    }
    let found =
        texts.flat_map(|text| text.windows(length)).filter_map(|piece| places.remove(piece)).flatten();
    let place = |at: usize| view.get(at).map_or(end, |(_, place)| *place);
    found.map(|at| place(at)..place(at + length)).collect()
}

/// The bytes without percent-encoding, or `nested` ones, each with its place in `text`; `None`: there is none.
fn decode(text: &[u8], nested: bool) -> Option<Zeroizing<Vec<(u8, usize)>>> {
    let mut bytes: Zeroizing<Vec<(u8, usize)>> = Zeroizing::new(Vec::with_capacity(text.len()));
    let mut ended = 0; // the end of the last encoding
    for (at, byte) in text.iter().enumerate() {
        bytes.push((*byte, at));
        while let Some(start) = bytes.len().checked_sub(3).filter(|start| nested || *start >= ended)
            && let Some(&[(b'%', place), (high, _), (low, _)]) = bytes.get(start..)
            && let Some((high, low)) = hex(high).zip(hex(low))
        {
            bytes.truncate(start);
            bytes.push((high << 4 | low, place));
            ended = bytes.len();
        }
    }
    (bytes.len() < text.len()).then_some(bytes)
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

/// Whether a line is in every bundle: its words are not the caller's.
fn is_boundary(line: &[u8]) -> bool {
    matches!(line.trim_ascii(), b"-----BEGIN CERTIFICATE-----" | b"-----END CERTIFICATE-----")
}

fn is_base64(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=' | b'\r')
}

#[cfg(test)]
mod tests;
