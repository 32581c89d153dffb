//! Places in a document.

use std::fmt;

/// A place in a document: 1-based, columns in characters. Zero within JSON, whose parser does not report positions.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub struct Position {
    /// Line.
    pub line: u32,
    /// Column.
    pub column: u32,
}

impl Position {
    /// An unknown position.
    pub const UNKNOWN: Self = Self { line: 0, column: 0 };

    /// Whether the position is known.
    pub const fn is_known(self) -> bool {
        self.line != 0
    }

    /// The position in parentheses after a blank, for the end of a message; empty if it is not known.
    pub fn suffix(self) -> String {
        if self.is_known() { format!(" ({self})") } else { String::new() }
    }

    pub(super) fn new(line: usize, column: usize) -> Self {
        let number = |value| u32::try_from(value).unwrap_or(u32::MAX);
        Self { line: number(line), column: number(column) }
    }

    /// The position after `text`.
    pub(super) fn after(text: &str) -> Self {
        let last = text.rsplit('\n').next().unwrap_or_default();
        Self::new(text.matches('\n').count() + 1, last.chars().count() + 1)
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}
