//! One document tree for JSON and YAML, with the position of everything in it.
//!
//! The ready-made derives are too lenient for plugin output and stop at the first problem in a config. This tree keeps
//! what they drop: whether a scalar was quoted, and the position of each value and key. It may contain a secret, so
//! neither its `Debug` nor an error shows any of the text.

mod node;
mod yaml;

use std::ops::Range;

pub use node::{Key, Node, ParseError, ParseErrorKind, Position, Value};
pub use yaml::{Aliases, yaml};

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

#[cfg(test)]
mod tests;
