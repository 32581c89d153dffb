//! Text that people read: errors in one line, names that others chose, and suggestions.

mod nearest;
mod sanitize;

use std::{error::Error, fmt::Write as _};

pub(crate) use nearest::nearest;
pub(crate) use sanitize::{last_lines, sanitize};

/// An error and its causes in one line: `what failed: why: why`. No layer repeats another one.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let _infallible = write!(text, ": {error}");
        cause = error.source();
    }
    text
}

/// A name that someone else chose, safe to print: at most 100 characters, with control characters escaped.
pub(crate) fn shown(name: &str) -> String {
    let mut shown: String = name.chars().take(100).flat_map(char::escape_debug).collect();
    if name.chars().nth(100).is_some() {
        shown.push('…');
    }
    shown
}

/// A list of names that fits a gRPC status, which travels in a header.
pub(crate) fn listed(names: &[String]) -> String {
    listed_all(names.iter().map(|name| shown(name)))
}

/// A list of texts that are safe to print; like [`listed`].
pub(crate) fn listed_all(texts: impl ExactSizeIterator<Item = String>) -> String {
    const MOST: usize = 20;
    let count = texts.len();
    let list = texts.take(MOST).collect::<Vec<_>>().join(", ");
    match count {
        0 => "none".to_owned(),
        all if all > MOST => format!("{list} and {} more", all - MOST),
        _ => list,
    }
}
