//! What a user sees while a request takes long: what it waits for, and what the plugin writes.

use std::{cell::RefCell, io::Write, time::Duration};

use credbroker_client::blocking::Notice;

use crate::source::Source;

/// After this time a user sees what the request waits for.
const SILENCE: Duration = Duration::from_secs(1);
const CLEAR: &str = "\r\x1b[K";

/// Calls `answer` with a notice that shows on `err`, a terminal, what the request for `source` waits for, and the lines of
/// the plugin, and that lends the terminal to a plugin that reads from it. Clears the first when the plugin writes, and when
/// the answer arrives.
pub fn with_notice<T>(
    program: &str,
    source: &Source,
    err: &mut dyn Write,
    answer: impl FnOnce(Notice<'_>) -> T,
) -> T {
    let shown = RefCell::new(Shown { err, is_waiting: false });
    let mut waits = || shown.borrow_mut().waits(&format!("{program}: waiting for {source} ..."));
    let mut lines = |line: &str| shown.borrow_mut().line(line);
    let mut before = || shown.borrow_mut().clear();
    let answer = answer(Notice::new(SILENCE, &mut waits).attend(&mut lines).lend_terminal(&mut before));
    shown.borrow_mut().clear();
    answer
}

/// What is on the terminal.
struct Shown<'a> {
    err: &'a mut dyn Write,
    is_waiting: bool,
}

impl Shown<'_> {
    fn waits(&mut self, text: &str) {
        self.write(text);
        self.is_waiting = true;
    }

    fn line(&mut self, line: &str) {
        self.clear();
        self.write(&format!("{}\n", visible(line)));
    }

    fn clear(&mut self) {
        if std::mem::take(&mut self.is_waiting) {
            self.write(CLEAR);
        }
    }

    /// Errors are ignored: there is no other place for the text.
    fn write(&mut self, text: &str) {
        drop(self.err.write_all(text.as_bytes()).and_then(|()| self.err.flush()));
    }
}

/// `line` without what a terminal obeys, or what hides or reorders text. The broker does this too; the shim does not depend
/// on it.
pub(crate) fn visible(line: &str) -> String {
    line.chars().map(|character| if is_visible(character) { character } else { '\u{fffd}' }).collect()
}

fn is_visible(character: char) -> bool {
    let is_control = character.is_control() && character != '\t';
    let is_hidden = matches!(character,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}');
    !is_control && !is_hidden
}

#[cfg(test)]
mod tests;
