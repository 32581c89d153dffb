//! Names and texts that others chose, safe to print.

use std::path::Path;

use super::sanitize;

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
mod tests {
    use super::*;

    #[test]
    fn a_name_is_short_and_cannot_control_a_terminal() {
        assert_eq!(shown("a\u{1b}[2J\n"), "a\\u{1b}[2J\\n");
        assert_eq!(shown(&"x".repeat(101)), format!("{}…", "x".repeat(100)));
        assert_eq!(one_line(" a\n\tb\u{1b}[2J "), "a bU+001B[2J");
        assert_eq!(listed(&[]), "none");
        assert_eq!(listed(&vec!["x".to_owned(); 21]), format!("{} and 1 more", ["x"; 20].join(", ")));
    }

    #[test]
    fn a_path_that_is_shown_keeps_its_end_and_steers_no_terminal() {
        let path = format!("/{}/\u{1b}[2J/config", "x".repeat(500));
        let shown = shown_path(Path::new(&path));
        assert!(shown.starts_with('…') && shown.ends_with("/\\u{1b}[2J/config"), "{shown}");
        assert_eq!(shown.chars().count(), 121);
    }
}
