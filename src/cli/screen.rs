//! How wide the output may be, and whether it may have colours.

use std::io::{self, IsTerminal as _};

use rustix::termios::tcgetwinsize;

use crate::plugin::Environment;

/// The width of a terminal that does not know it.
const USUAL: usize = 80;
/// No text fits a narrower one.
const NARROWEST: usize = 20;

/// Where a command writes its output.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Screen {
    /// The columns and rows of the terminal. `None`: it is not a terminal, and lines may have any length.
    pub(super) size: Option<(usize, usize)>,
    /// Whether colours are shown.
    pub(super) colors: bool,
}

/// What a text says.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) enum Tone {
    #[default]
    Plain,
    Good,
    Pending,
    Bad,
    /// Less important than the rest.
    Faint,
}

impl Screen {
    /// The standard output of this process.
    pub(super) fn of_stdout(environment: &Environment) -> Self {
        let stdout = io::stdout();
        if !stdout.is_terminal() {
            return Self::default();
        }
        let size = tcgetwinsize(&stdout).map(|size| (usize::from(size.ws_col), usize::from(size.ws_row)));
        Self::of(size.unwrap_or_default(), environment)
    }

    /// A terminal with these columns and rows, which are 0 if it does not know them.
    fn of((columns, rows): (usize, usize), environment: &Environment) -> Self {
        let columns = if columns == 0 { USUAL } else { columns.max(NARROWEST) };
        let rows = if rows == 0 { usize::MAX } else { rows };
        let is_dumb = environment.get("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
        let colors = environment.set("NO_COLOR").is_none() && !is_dumb;
        Self { size: Some((columns, rows)), colors }
    }

    /// The most characters of a line.
    pub(super) fn width(self) -> usize {
        self.size.map_or(usize::MAX, |(columns, _)| columns)
    }

    /// `text` in the colour of `tone`.
    pub(super) fn paint(self, tone: Tone, text: &str) -> String {
        let code = match tone {
            _ if !self.colors => return text.to_owned(),
            Tone::Plain => return text.to_owned(),
            Tone::Good => "32",
            Tone::Pending => "33",
            Tone::Bad => "31",
            Tone::Faint => "2",
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }
}

/// `text` in lines of at most `width` characters; all but the first begin with `indent` blanks. A word that is longer is
/// divided.
pub(super) fn wrapped(text: &str, indent: usize, width: usize) -> String {
    let words = text.trim_start_matches(' ');
    let blanks = |count: usize| " ".repeat(if count + 10 > width { 0 } else { count });
    let mut line = blanks(text.len() - words.len());
    let (mut lines, mut start, mut length) = (String::new(), line.len(), line.len());
    for mut word in words.split(' ') {
        loop {
            let blank = usize::from(length > start);
            let count = word.chars().count();
            if length + blank + count <= width {
                line.extend(std::iter::repeat_n(' ', blank));
                line.push_str(word);
                length += blank + count;
                break;
            }
            if blank == 0 {
                let (first, rest) = split(word, width - length);
                line.push_str(first);
                word = rest;
            }
            lines.push_str(&std::mem::replace(&mut line, blanks(indent)));
            lines.push('\n');
            (start, length) = (line.len(), line.len());
        }
    }
    lines + &line + "\n"
}

fn split(text: &str, at: usize) -> (&str, &str) {
    let at = text.char_indices().nth(at).map_or(text.len(), |(at, _)| at);
    text.split_at_checked(at).unwrap_or((text, ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(variables: &[(&str, &str)]) -> Environment {
        variables.iter().copied().collect()
    }

    #[test]
    fn colours_are_for_terminals_and_people_who_want_them() {
        let colors = |variables| Screen::of((80, 24), &environment(variables)).colors;
        assert!(colors(&[("TERM", "xterm")]));
        assert!(colors(&[("TERM", "xterm"), ("NO_COLOR", "")]));
        for variables in [&[][..], &[("TERM", "dumb")], &[("TERM", "xterm"), ("NO_COLOR", "1")]] {
            assert!(!colors(variables), "{variables:?}");
        }
        let screen = Screen { size: None, colors: true };
        assert_eq!(screen.paint(Tone::Bad, "x"), "\x1b[31mx\x1b[0m");
        assert_eq!(screen.paint(Tone::Plain, "x"), "x");
        assert_eq!(Screen::default().paint(Tone::Bad, "x"), "x");
    }

    #[test]
    fn a_terminal_that_does_not_know_its_size_has_the_usual_one() {
        assert_eq!(Screen::of((0, 0), &environment(&[])).size, Some((80, usize::MAX)));
        assert_eq!(Screen::of((5, 3), &environment(&[])).size, Some((20, 3)));
        assert_eq!(Screen::default().width(), usize::MAX);
    }

    #[test]
    fn long_lines_are_wrapped_and_long_words_divided() {
        let text =
            "gke: PLUGIN_EXIT: the plugin /usr/local/bin/gke-gcloud-auth-plugin-with-a-name exited with 1";
        assert_eq!(
            wrapped(text, 2, 30),
            "gke: PLUGIN_EXIT: the plugin\n  /usr/local/bin/gke-gcloud-au\n  th-plugin-with-a-name exited\n  with 1\n"
        );
        assert_eq!(wrapped(text, 2, usize::MAX), format!("{text}\n"));
        assert_eq!(wrapped("", 2, 30), "\n");
        assert_eq!(wrapped("    /a b", 4, 30), "    /a b\n");
        assert_eq!(wrapped("config  /a", 8, 30), "config  /a\n");
        for width in 10..60 {
            let text = wrapped(text, 2, width);
            assert!(text.lines().all(|line| line.chars().count() <= width), "{width}: {text}");
        }
    }
}
