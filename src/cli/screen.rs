//! How wide the output may be, and whether it may have colours.

use std::io::{self, IsTerminal as _};

use rustix::termios::tcgetwinsize;

use credbroker_plugin::Environment;

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

#[cfg(test)]
mod tests;
