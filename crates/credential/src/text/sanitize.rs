//! Text that a plugin or a peer wrote, made safe for a terminal and a log.

use std::fmt::Write as _;

/// `text` with every character that is not visible text written as `U+XXXX`: control characters and with them the
/// escape sequences of terminals, bidirectional marks, zero-width, private and unassigned characters. Line breaks,
/// tabs and spaces of all widths stay. Twice is the same as once.
pub fn sanitize(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    for character in text.chars() {
        if is_text(character) {
            clean.push(character);
        } else {
            clean.extend(format!("U+{:04X}", u32::from(character)).chars());
        }
    }
    clean
}

/// A JSON document with every such character as `\uXXXX`: the same values, but nothing that a terminal obeys or hides.
pub fn escape_json(document: &str) -> String {
    let mut escaped = String::with_capacity(document.len());
    for character in document.chars() {
        if is_text(character) {
            escaped.push(character);
        } else {
            // Outside of strings, a document has only ASCII.
            for unit in character.encode_utf16(&mut [0; 2]) {
                let _infallible = write!(escaped, "\\u{unit:04x}");
            }
        }
    }
    escaped
}

/// The last whole lines of what a plugin wrote to stderr, sanitised, in one line and at most about `most` bytes. `cut`:
/// `bytes` starts somewhere inside a line.
pub fn last_lines(bytes: &[u8], cut: bool, most: usize) -> String {
    // A carriage return ends a line too: progress bars draw one over the other.
    let is_end = |byte: &u8| matches!(byte, b'\n' | b'\r');
    let first = bytes.iter().position(is_end).filter(|_| cut).map_or(0, |end| end + 1);
    let bytes = bytes.get(first..).unwrap_or_default();
    let mut kept = Vec::new();
    let mut left = most;
    for line in bytes.rsplit(is_end).filter(|line| !line.trim_ascii().is_empty()) {
        let line = sanitize(String::from_utf8_lossy(line).trim());
        if line.len() > left {
            if kept.is_empty() {
                kept.push(format!("…{}", end_of(&line, most)));
            }
            break;
        }
        left -= line.len();
        kept.push(line);
    }
    kept.reverse();
    kept.join(" | ")
}

/// The longest end of `line` that has at most `most` bytes.
fn end_of(line: &str, most: usize) -> &str {
    let start = line.char_indices().map(|(index, _)| index).find(|index| line.len() - index <= most);
    start.and_then(|start| line.get(start..)).unwrap_or_default()
}

fn is_text(character: char) -> bool {
    match character {
        // U+FFFD replaces bytes that are not UTF-8. There can be many of them, and the last arm is slow.
        '\n' | '\t' | char::REPLACEMENT_CHARACTER => true,
        '\u{2028}' | '\u{2029}' => false, // line breaks to some readers, and invisible
        _ if character.is_control() => false,
        _ if character.is_whitespace() || character.is_ascii() => true,
        // The standard library knows what is printable, but says so only by escaping the rest. A mark is escaped when
        // it comes first, hence the underscore.
        _ => !format!("_{character}").escape_debug().any(|escaped| escaped == '\\'),
    }
}

#[cfg(test)]
mod tests;
