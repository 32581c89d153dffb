//! Text that people read: errors in one line, names that others chose, and suggestions.

mod nearest;
mod sanitize;
mod shown;

use std::{error::Error, fmt::Write as _};

pub use nearest::nearest;
pub use sanitize::{escape_json, last_lines, sanitize};
pub use shown::{listed, listed_all, one_line, shown, shown_path};

/// An error and its causes: `what failed: why: why`. A cause that the text already contains is left out: some libraries
/// repeat their sources.
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
}
