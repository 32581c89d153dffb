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
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_lines_have_no_trailing_blanks() {
        let rows = [["gke".to_owned(), "ß".to_owned()], ["a long name".to_owned(), String::new()]];
        assert_eq!(text(["NAME", "X"], rows), "NAME         X\ngke          ß\na long name\n");
    }

    #[test]
    fn widths_are_computed_once_for_all_rows() {
        let rows = (1..=100_000).map(|row| [row.to_string(), "x".repeat(row % 7), "y".to_owned()]);
        let text = text(["ROW", "X", ""], rows);
        assert_eq!(text.lines().count(), 100_001);
        assert_eq!(text.lines().last(), Some("100000  xxxxx   y"));
    }

    #[test]
    fn a_table_fits_its_screen() {
        let row = |name: &str| {
            (Tone::Good, [name.to_owned(), "valid".to_owned(), "in 42m".to_owned(), "7".to_owned()])
        };
        let rows = [row("gke"), row("arn:aws:eks:eu-central-1:123456789012:cluster/production")];
        let text = |width, colors| {
            let screen = Screen { size: Some((width, 24)), colors };
            fitted(["PROVIDER", "STATE", "EXPIRES", "RUNS"], &rows, (1, &[3, 2]), screen)
        };
        for width in 15..100 {
            let text = text(width, false);
            assert!(text.lines().all(|line| line.chars().count() <= width), "{width}: {text}");
        }
        assert_eq!(
            text(40, false),
            "PROVIDER              STATE  EXPIRES\n\
             gke                   valid  in 42m\n\
             arn:aws:ek…roduction  valid  in 42m\n"
        );
        assert!(text(40, true).contains("\x1b[32mvalid\x1b[0m  in 42m"));
        let unlimited =
            fitted(["PROVIDER", "STATE", "EXPIRES", "RUNS"], &rows, (1, &[3, 2]), Screen::default());
        assert!(unlimited.contains("cluster/production  valid  in 42m   7\n"), "{unlimited}");
    }

    #[test]
    fn a_long_text_loses_only_its_middle() {
        for (text, most, expected) in [
            ("", 3, ""),
            ("äbc", 3, "äbc"),
            ("äbcd", 3, "ä…d"),
            ("abcdef", 4, "ab…f"),
            ("ab", 1, "…"),
            ("a", 0, "…"),
        ] {
            assert_eq!(shortened(text, most), expected);
        }
    }
}
