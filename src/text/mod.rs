//! Text that people read: errors in one line, names that others chose, and suggestions.

mod nearest;
mod sanitize;

use std::{error::Error, fmt::Write as _};

pub(crate) use nearest::nearest;
pub(crate) use sanitize::{escape_json, last_lines, sanitize};

/// An error and its causes: `what failed: why: why`. A cause that the text already contains is left out: some libraries
/// repeat their sources.
pub(crate) fn chain(error: &dyn Error) -> String {
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

/// Text that someone else wrote, safe to print in one line.
pub(crate) fn one_line(text: &str) -> String {
    sanitize(text).split_whitespace().collect::<Vec<_>>().join(" ")
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

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct Layer {
        text: &'static str,
        source: Option<Box<Layer>>,
    }

    fn layers(texts: &[&'static str]) -> Option<Box<Layer>> {
        let (text, below) = texts.split_first()?;
        Some(Box::new(Layer { text, source: layers(below) }))
    }

    #[test]
    fn a_chain_names_each_cause_once() {
        let chained = |texts: &[&'static str]| chain(&*layers(texts).unwrap());
        assert_eq!(chained(&["cannot connect"]), "cannot connect");
        assert_eq!(
            chained(&["cannot connect", "TLS failed", "bad certificate"]),
            "cannot connect: TLS failed: bad certificate"
        );
        assert_eq!(
            chained(&["cannot connect: TLS failed", "TLS failed", "expired"]),
            "cannot connect: TLS failed: expired"
        );
    }

    #[test]
    fn a_name_is_short_and_cannot_control_a_terminal() {
        assert_eq!(shown("a\u{1b}[2J\n"), "a\\u{1b}[2J\\n");
        assert_eq!(shown(&"x".repeat(101)), format!("{}…", "x".repeat(100)));
        assert_eq!(one_line(" a\n\tb\u{1b}[2J "), "a bU+001B[2J");
        assert_eq!(listed(&[]), "none");
        assert_eq!(listed(&vec!["x".to_owned(); 21]), format!("{} and 1 more", ["x"; 20].join(", ")));
    }
}
