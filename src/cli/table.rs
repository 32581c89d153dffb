//! Tables for people: columns as wide as their widest cell.

/// `rows` under `head`, left-aligned, two spaces between columns.
pub(super) fn text<const N: usize>(head: [&str; N], rows: &[[String; N]]) -> String {
    let mut widths = head.map(|cell| cell.chars().count());
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let mut text = String::new();
    line(&mut text, head, &widths);
    for row in rows {
        line(&mut text, row.each_ref().map(String::as_str), &widths);
    }
    text
}

/// Writes the padding before each cell, so that no line ends with blanks.
fn line<const N: usize>(text: &mut String, cells: [&str; N], widths: &[usize; N]) {
    let mut blanks = 0;
    for (cell, width) in cells.into_iter().zip(widths) {
        if !cell.is_empty() {
            text.extend(std::iter::repeat_n(' ', blanks));
            text.push_str(cell);
            blanks = 0;
        }
        blanks += width + 2 - cell.chars().count();
    }
    text.push('\n');
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
        assert_eq!(text(["NAME", "X"], &rows), "NAME         X\ngke          ß\na long name\n");
    }

    #[test]
    fn widths_are_computed_once_for_all_rows() {
        let rows: Vec<_> =
            (1..=100_000).map(|row| [row.to_string(), "x".repeat(row % 7), "y".to_owned()]).collect();
        let text = text(["ROW", "X", ""], &rows);
        assert_eq!(text.lines().count(), 100_001);
        assert_eq!(text.lines().last(), Some("100000  xxxxx   y"));
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
