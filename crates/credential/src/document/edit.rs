//! Edits of a document as text: one value is replaced, and everything else stays as it is, comments too.

use std::ops::Range;

use super::{Aliases, Node, Outline, yaml};

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
