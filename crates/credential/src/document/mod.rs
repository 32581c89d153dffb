//! One document tree for JSON and YAML, with the position of everything in it.
//!
//! The ready-made derives are too lenient for plugin output and stop at the first problem in a config. This tree keeps
//! what they drop: whether a scalar was quoted, and the position of each value and key. It may contain a secret, so
//! neither its `Debug` nor an error shows any of the text.

mod edit;
mod json;
mod node;
mod yaml;

pub use edit::{Outline, fitted, means, replaced};
pub use json::json;
pub use node::{Key, Node, ParseError, ParseErrorKind, Position, Value};
pub use yaml::{Aliases, yaml};

use node::{MAX_OUTPUT_NODES, text};

/// Reads one JSON or YAML document that a plugin printed: JSON if it starts like an object and is JSON, else YAML.
///
/// A YAML flow mapping starts like a JSON object too. When neither grammar takes it, the JSON error is the answer.
pub fn parse(bytes: &[u8], aliases: Aliases) -> Result<Node, ParseError> {
    let first = text(bytes)?.bytes().find(|byte| !byte.is_ascii_whitespace());
    if first != Some(b'{') {
        return yaml::within(bytes, aliases, MAX_OUTPUT_NODES);
    }
    json::within(bytes, MAX_OUTPUT_NODES).or_else(|error| match error.kind {
        ParseErrorKind::Syntax | ParseErrorKind::TextAfter => {
            yaml::within(bytes, aliases, MAX_OUTPUT_NODES).or(Err(error))
        }
        _ => Err(error),
    })
}

#[cfg(test)]
mod tests;
