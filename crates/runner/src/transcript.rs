//! The lines that a plugin writes to stderr, sanitized, for those who attend its run and for errors. Pure.

use std::{collections::VecDeque, sync::Arc};

use credbroker_credential::text::sanitize;

/// The bytes of lines that are kept: those who attend late get these.
const KEPT: usize = 64 << 10;
/// The longest line in bytes, up to the end of its last character. A longer one is cut into several.
const LINE: usize = 4 << 10;
/// The bytes of a character of UTF-8 after its first one, at most.
const LAST: usize = 3;
/// What a line takes besides its text.
const EACH: usize = 32;

/// The last lines of a plugin's stderr. They may have a device code, so `Debug` does not show them.
#[derive(derive_more::Debug, Default)]
#[debug("Transcript({count} lines)")]
pub(crate) struct Transcript {
    /// Each with whether it goes on with the line before it, which was cut.
    lines: VecDeque<(Arc<str>, bool)>,
    bytes: usize,
    /// The number of lines so far, also of those that are not kept.
    count: u64,
    /// The begin of a line whose end has not been written.
    partial: Vec<u8>,
    /// Whether that goes on with the last line.
    goes_on: bool,
}

impl Transcript {
    /// Adds what the plugin wrote. A carriage return ends a line too: progress bars draw one over the other.
    pub(crate) fn push(&mut self, mut written: &[u8]) {
        while let Some((&first, rest)) = written.split_first() {
            written = rest;
            match first {
                b'\n' => self.end_line(false),
                b'\r' if !self.partial.is_empty() && rest.first() != Some(&b'\n') => self.end_line(false),
                b'\r' => {}
                byte => {
                    // A character of UTF-8 begins with it. Other bytes may have no boundary.
                    let is_boundary = byte & 0b1100_0000 != 0b1000_0000;
                    let length = self.partial.len();
                    if length >= LINE + LAST || (length >= LINE && is_boundary) {
                        self.end_line(true);
                    }
                    self.partial.push(byte);
                }
            }
        }
    }

    /// Whether a line has no end yet, such as a prompt.
    pub(crate) fn has_partial(&self) -> bool {
        !self.partial.is_empty()
    }

    /// Counts what has no end as a line.
    pub(crate) fn flush(&mut self) {
        if self.has_partial() {
            self.end_line(false);
        }
    }

    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// The lines after the first `seen` that are kept.
    pub(crate) fn after(&self, seen: u64) -> impl Iterator<Item = Arc<str>> {
        let unseen = usize::try_from(self.count.saturating_sub(seen)).unwrap_or(usize::MAX);
        self.lines.iter().skip(self.lines.len().saturating_sub(unseen)).map(|(line, _)| Arc::clone(line))
    }

    /// The last lines with text, in one line and at most about `most` bytes; of a last line that is longer, its end.
    pub(crate) fn last(&self, most: usize) -> String {
        let (mut kept, mut left, mut whole) = (VecDeque::new(), most, String::new());
        for (line, goes_on) in self.lines.iter().rev() {
            whole.insert_str(0, line.trim());
            if whole.len() > left {
                break;
            }
            if !(goes_on | whole.is_empty()) {
                left -= whole.len();
                kept.push_front(std::mem::take(&mut whole));
            }
        }
        if kept.is_empty() && !whole.is_empty() {
            kept.push_front(format!("…{}", end_of(&whole, left)));
        }
        Vec::from(kept).join(" | ")
    }

    /// `is_cut`: the line goes on.
    fn end_line(&mut self, is_cut: bool) {
        let line: Arc<str> = sanitize(String::from_utf8_lossy(&self.partial).trim_end()).into();
        self.partial.clear();
        self.count += 1;
        self.bytes += line.len() + EACH;
        self.lines.push_back((line, std::mem::replace(&mut self.goes_on, is_cut)));
        while self.bytes > KEPT {
            let Some(oldest) = self.lines.pop_front() else { break };
            self.bytes -= oldest.0.len() + EACH;
        }
    }
}

/// The longest end of `line` that has at most `most` bytes.
fn end_of(line: &str, most: usize) -> &str {
    let start = line.char_indices().map(|(index, _)| index).find(|index| line.len() - index <= most);
    start.and_then(|start| line.get(start..)).unwrap_or_default()
}

#[cfg(test)]
mod tests;
