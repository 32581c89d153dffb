//! Tables for people: columns as wide as their widest cell.

use super::screen::{Screen, Tone};

/// The most characters of a first column before other columns are left out.
const NAME: usize = 20;
/// The fewest characters of it.
const SHORT_NAME: usize = 8;

/// `rows` under `head` in at most the width of `screen`. If they are wider, the texts of the first column are shortened and
/// the columns in `optional` are left out, the first of them first. Column `painted` has the tone of its row.
pub(super) fn fitted<const N: usize>(
    head: [&str; N],
    rows: &[(Tone, [String; N])],
    (painted, optional): (usize, &[usize]),
    screen: Screen,
) -> String {
    let length = |text: &str| text.chars().count();
    let widest = |column: usize| {
        let cells = rows.iter().filter_map(|(_, cells)| cells.get(column)).map(|cell| length(cell));
        cells.max().unwrap_or_default().max(head.get(column).map_or(0, |cell| length(cell)))
    };
    let mut widths: Vec<_> = (0..N).map(|column| (column, widest(column))).collect();
    let mut optional = optional.iter();
    let limit = |widths: &mut [(usize, usize)], most: usize, least: usize| {
        let total = widths.iter().map(|(_, width)| width + 2).sum::<usize>().saturating_sub(2);
        let excess = total.saturating_sub(most);
        if let Some((0, first)) = widths.first_mut() {
            *first = first.saturating_sub(excess).max(least.min(*first));
        }
        widths.iter().map(|(_, width)| width + 2).sum::<usize>() <= most.saturating_add(2)
    };
    while !limit(&mut widths, screen.width(), NAME) {
        let Some(left_out) = optional.next() else {
            limit(&mut widths, screen.width(), SHORT_NAME);
            break;
        };
        widths.retain(|(column, _)| column != left_out);
    }
    let mut text = String::new();
    let head = (Tone::Plain, head.map(str::to_owned));
    for (tone, cells) in std::iter::once(&head).chain(rows) {
        let mut blanks = 0;
        for (column, width) in &widths {
            let cell = cells.get(*column).map_or("", String::as_str);
            let cell = if *column == 0 { shortened(cell, *width) } else { cell.to_owned() };
            if !cell.is_empty() {
                text.extend(std::iter::repeat_n(' ', blanks));
                text.push_str(&screen.paint(if *column == painted { *tone } else { Tone::Plain }, &cell));
                blanks = 0;
            }
            blanks += width + 2 - length(&cell);
        }
        text.push('\n');
    }
    text
}

/// `rows` under `head`, for a screen without a width or colours.
pub(super) fn text<const N: usize>(head: [&str; N], rows: impl IntoIterator<Item = [String; N]>) -> String {
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

#[cfg(test)]
mod tests;
