//! Text for a user at a screen: its width and colors, tables, wrapped lines, times, and what a command waits for.

use std::{
    io::{self, IsTerminal as _, Write as _},
    pin::pin,
    time::{Duration, SystemTime},
};

use prost_types::Timestamp;
use rustix::termios::tcgetwinsize;
use tokio::time::timeout;

use credbroker_plugin::Environment;

/// The width of a terminal that does not know it.
const USUAL: usize = 80;
/// No text fits a narrower one.
const NARROWEST: usize = 20;
/// The most characters of a first column before other columns are left out.
const NAME: usize = 20;
const SHORT_NAME: usize = 8;

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Screen {
    /// The columns and rows of the terminal. `None`: it is not a terminal, and lines may have any length.
    pub(super) size: Option<(usize, usize)>,
    pub(super) colors: bool,
}

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
/// What a text says, and the code of its color.
pub(super) enum Tone {
    #[default]
    Plain = 0,
    Faint = 2,
    Bad = 31,
    Good = 32,
    Pending = 33,
}

impl Screen {
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

    pub(super) fn width(self) -> usize {
        self.size.map_or(usize::MAX, |(columns, _)| columns)
    }

    pub(super) fn paint(self, tone: Tone, text: &str) -> String {
        let code = tone as u8;
        if self.colors && code > 0 { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// `rows` under `head` in at most the width of `screen`. If they are wider, the texts of the first column are shortened and
/// the columns in `optional` are left out, the first of them first. Column `painted` has the tone of its row.
pub(super) fn fitted<const N: usize>(
    head: [&str; N],
    rows: &[(Tone, [String; N])],
    (painted, optional): (usize, &[usize]),
    screen: Screen,
) -> String {
    let length = |text: &str| text.chars().count();
    let head = (Tone::Plain, head.map(str::to_owned));
    let lines = || std::iter::once(&head).chain(rows);
    let widest =
        |column: usize| lines().filter_map(|(_, cells)| cells.get(column)).map(|cell| length(cell)).max();
    let mut widths: Vec<_> = (0..N).map(|column| (column, widest(column).unwrap_or_default())).collect();
    let excess = |widths: &[(usize, usize)]| {
        let total = widths.iter().map(|(_, width)| width + 2).sum::<usize>().saturating_sub(2);
        total.saturating_sub(screen.width())
    };
    for left_out in optional {
        if excess(&widths) > widest(0).unwrap_or_default().saturating_sub(NAME) {
            widths.retain(|(column, _)| column != left_out);
        }
    }
    let excess = excess(&widths);
    if let Some((0, first)) = widths.first_mut() {
        *first = first.saturating_sub(excess).max(SHORT_NAME.min(*first));
    }
    let mut text = String::new();
    for (tone, cells) in lines() {
        let mut line = String::new();
        for (column, width) in &widths {
            let cell = cells.get(*column).map_or("", String::as_str);
            let cell = if *column == 0 { shortened(cell, *width) } else { cell.to_owned() };
            line.push_str(&screen.paint(if *column == painted { *tone } else { Tone::Plain }, &cell));
            line.push_str(&" ".repeat(width + 2 - length(&cell)));
        }
        text.extend([line.trim_end_matches(' '), "\n"]);
    }
    text
}

/// `rows` under `head`, for a screen without a width or colors.
pub(super) fn unfitted<const N: usize>(
    head: [&str; N],
    rows: impl IntoIterator<Item = [String; N]>,
) -> String {
    let rows: Vec<_> = rows.into_iter().map(|cells| (Tone::Plain, cells)).collect();
    fitted(head, &rows, (0, &[]), Screen::default())
}

/// Shortens `text` to at most `most` characters. `…` replaces the middle, because servers and paths differ at their ends.
pub(super) fn shortened(text: &str, most: usize) -> String {
    let length = text.chars().count();
    if length <= most {
        return text.to_owned();
    }
    let kept = most.saturating_sub(1);
    let (start, end) = (kept.div_ceil(2), kept / 2);
    text.chars().take(start).chain(['…']).chain(text.chars().skip(length - end)).collect()
}

/// `text` in lines of at most `width` characters; all but the first begin with `indent` blanks. A word that is longer is
/// divided.
pub(super) fn wrapped(text: &str, indent: usize, width: usize) -> String {
    let blanks = " ".repeat(if indent + 10 > width { 0 } else { indent });
    let options = textwrap::Options::new(width).subsequent_indent(&blanks);
    textwrap::fill(text, options.word_splitter(textwrap::WordSplitter::NoHyphenation)) + "\n"
}

/// `2026-11-20T10:00:00Z`: the only format of times in JSON.
pub(super) fn rfc3339(at: SystemTime) -> String {
    Timestamp { nanos: 0, ..Timestamp::from(at) }.to_string()
}

/// `42m`: one unit, and at least two digits of precision for what is soon.
pub(super) fn span(span: Duration) -> String {
    match span.as_secs() {
        secs @ 0..120 => format!("{secs}s"),
        secs @ 120..7200 => format!("{}m", secs / 60),
        secs @ 7200..172_800 => format!("{}h", secs / 3600),
        secs => format!("{}d", secs / 86_400),
    }
}

/// `in 42m`, or `past` if `at` is not after `now`.
pub(super) fn ahead(at: SystemTime, now: SystemTime, past: &str) -> String {
    // Whole seconds, so that what is printed as the same second is not in the future.
    let whole = |at: SystemTime| at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    match whole(at).saturating_sub(whole(now)) {
        0 => past.to_owned(),
        left => format!("in {}", span(Duration::from_secs(left))),
    }
}

/// `2026-11-20T10:00:00Z (in 42m)`, or with `past`.
pub(super) fn dated(at: SystemTime, now: SystemTime, past: &str) -> String {
    format!("{} ({})", rfc3339(at), ahead(at, now, past))
}

/// `1 credential`, `2 credentials`.
pub(super) fn counted(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// `512`, `12.3Ki`, `4.0Mi`.
pub(super) fn size(bytes: u64) -> String {
    let units = [("Ti", 40), ("Gi", 30), ("Mi", 20), ("Ki", 10)];
    match units.into_iter().find(|(_, shift)| bytes >> shift > 0) {
        None => bytes.to_string(),
        Some((unit, shift)) => {
            let tenths = ((bytes & ((1 << shift) - 1)) * 10) >> shift;
            format!("{}.{tenths}{unit}", bytes >> shift)
        }
    }
}

/// Work that takes no longer than this shows no line.
const DELAY: Duration = Duration::from_secs(1);

/// A line on stderr that is overwritten by the next one and erased at the end; not shown if stderr is not a terminal.
#[derive(Debug)]
pub(super) struct Progress(bool);

impl Progress {
    pub(super) fn new() -> Self {
        Self(io::stderr().is_terminal())
    }

    pub(super) fn show(&self, what: &str) {
        if self.0 {
            let _ignored = write!(io::stderr(), "\r\x1b[K{what}");
        }
    }
}

/// Returns the outcome of `work`. After a second, a terminal shows `what`.
pub(super) async fn explained<T>(what: &str, work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    if let Ok(outcome) = timeout(DELAY, &mut work).await {
        return outcome;
    }
    let progress = Progress::new();
    progress.show(what);
    work.await
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.show("");
    }
}

#[cfg(test)]
mod tests;
