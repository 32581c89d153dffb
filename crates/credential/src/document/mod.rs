//! One document tree for JSON and YAML, with the position of everything in it.
//!
//! The ready-made derives are too lenient for plugin output and stop at the first problem in a config. This tree keeps
//! what they drop: whether a scalar was quoted, and the position of each value and key. It may contain a secret, so
//! neither its `Debug` nor an error shows any of the text.

mod edit;
mod error;
mod json;
mod node;
mod outline;
mod position;
mod scalar;
mod yaml;

pub use edit::{fitted, means, replaced};
pub use error::{ParseError, ParseErrorKind};
pub use json::json;
pub use node::{Key, Node, Value};
pub use outline::Outline;
pub use position::Position;
pub use yaml::{Aliases, yaml};

/// Collections inside each other, at most.
const MAX_DEPTH: usize = 64;
/// Keys and values of a file, at most: a kubeconfig with ten thousand clusters. Each takes about a hundred bytes of memory.
const MAX_NODES: usize = 400_000;
/// Keys and values of the output of a plugin, at most.
const MAX_OUTPUT_NODES: usize = 10_000;

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

/// The text without its byte order mark.
fn text(bytes: &[u8]) -> Result<&str, ParseError> {
    let text = str::from_utf8(bytes).map_err(|error| {
        let valid = bytes.get(..error.valid_up_to()).unwrap_or_default();
        ParseErrorKind::NotUtf8.at(Position::after(&String::from_utf8_lossy(valid)))
    })?;
    Ok(text.strip_prefix('\u{feff}').unwrap_or(text))
}

#[cfg(test)]
mod tests;
