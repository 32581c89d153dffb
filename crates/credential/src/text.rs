//! Text that people read: errors in one line, names that others chose, what plugins and peers wrote made safe for a
//! terminal and a log, and suggestions.

use std::{
    error::Error,
    fmt::{self, Write as _},
    path::Path,
};

/// Longer names get no suggestion for another one.
const LONGEST_NAME: usize = 100;

/// The name among `known` that is most similar to `name`, if at most about a third of its letters differ.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // The cost grows with the product of both lengths, and a caller chooses one of them.
    let letters = name.chars().take(LONGEST_NAME + 1).count();
    if letters > LONGEST_NAME {
        return None;
    }
    let (lower, limit) = (name.to_lowercase(), (letters + 1) / 3);
    let distance = |known: &str| strsim::osa_distance(&lower, &known.to_lowercase());
    let near = known.into_iter().filter(|known| known.chars().count().abs_diff(letters) <= limit);
    let near = near.map(|known| (distance(known), known)).filter(|(far, _)| *far <= limit);
    near.min().map(|(_, known)| known)
}

/// An error and its causes: `what failed: why: why`. Some libraries repeat their sources: that is left out.
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let why = error.to_string();
        if !text.contains(&why) {
            let _infallible = write!(text, ": {why}");
        }
        cause = error.source();
    }
    text
}

/// `text` with every character that is not visible text written as `U+XXXX`: control characters and with them the
/// escape sequences of terminals, bidirectional marks, zero-width, private and unassigned characters. Line breaks,
/// tabs and spaces of all widths stay. Twice is the same as once.
pub fn sanitize(text: &str) -> String {
    with_others(text, |clean, character| write!(clean, "U+{:04X}", u32::from(character)))
}

/// A JSON document with every such character as `\uXXXX`: the same values, but nothing that a terminal obeys or hides.
pub fn escape_json(document: &str) -> String {
    // Outside of strings, a document has only ASCII.
    with_others(document, |escaped, character| {
        character.encode_utf16(&mut [0; 2]).iter().try_for_each(|unit| write!(escaped, "\\u{unit:04x}"))
    })
}

/// `text` with each character that is not text written by `write`.
fn with_others(text: &str, write: impl Fn(&mut String, char) -> fmt::Result) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut written, character| {
        if is_text(character) {
            written.push(character);
        } else {
            let _infallible = write(&mut written, character);
        }
        written
    })
}

fn is_text(character: char) -> bool {
    match character {
        // U+FFFD replaces bytes that are not UTF-8. There can be many of them, and the last arm is slow.
        '\n' | '\t' | char::REPLACEMENT_CHARACTER => true,
        '\u{2028}' | '\u{2029}' => false, // line breaks to some readers, and invisible
        _ if character.is_control() => false,
        _ if character.is_whitespace() || character.is_ascii() => true,
        // The standard library escapes what is not printable, and also a mark that comes first, hence the underscore.
        _ => !format!("_{character}").escape_debug().any(|escaped| escaped == '\\'),
    }
}

/// Text that someone else wrote, safe to print in one line.
pub fn one_line(text: &str) -> String {
    sanitize(text).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A name that someone else chose, safe to print: at most 100 characters, with control characters escaped.
pub fn shown(name: &str) -> String {
    let mut shown: String = name.chars().take(100).flat_map(char::escape_debug).collect();
    if name.chars().nth(100).is_some() {
        shown.push('…');
    }
    shown
}

/// A name as one word of a shell's command line, safe to print.
pub fn quoted(name: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "_-./:@+,".contains(letter);
    if !name.is_empty() && name.chars().all(is_plain) {
        return name.to_owned();
    }
    format!("'{}'", sanitize(name).replace('\'', r"'\''"))
}

/// A path that is safe to print. A long path is cut to its end, where paths differ most.
pub fn shown_path(path: &Path) -> String {
    const MOST: usize = 120;
    let path = path.to_string_lossy();
    let escaped: Vec<char> = path.chars().flat_map(char::escape_debug).collect();
    match escaped.len().checked_sub(MOST) {
        None | Some(0) => escaped.into_iter().collect(),
        Some(over) => std::iter::once('…').chain(escaped.into_iter().skip(over)).collect(),
    }
}

/// A list of names that fits a gRPC status, which travels in a header.
pub fn listed(names: &[String]) -> String {
    listed_all(names.iter().map(|name| shown(name)))
}

/// A list of texts that are safe to print; like [`listed`].
pub fn listed_all(texts: impl ExactSizeIterator<Item = String>) -> String {
    const MOST: usize = 20;
    let count = texts.len();
    let list = texts.take(MOST).collect::<Vec<_>>().join(", ");
    match count {
        0 => "none".to_owned(),
        all if all > MOST => format!("{list} and {} more", all - MOST),
        _ => list,
    }
}

#[cfg(test)]
mod tests;
