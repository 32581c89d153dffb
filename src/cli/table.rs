//! Tables for people: columns as wide as their widest cell.

/// `rows` under `head`, left-aligned, two spaces between columns.
pub(super) fn text<const N: usize>(head: [&str; N], rows: &[[String; N]]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.chain(head.get(column).map(|cell| cell.chars().count())).max().unwrap_or_default()
    };
    let line = |cells: [&str; N]| {
        let padded = cells.iter().enumerate().map(|(column, cell)| format!("{cell:<0$}", width(column) + 2));
        padded.collect::<String>().trim_end().to_owned() + "\n"
    };
    let rows = rows.iter().map(|row| line(row.each_ref().map(String::as_str)));
    std::iter::once(line(head)).chain(rows).collect()
}

/// `text` in at most `most` characters, with `…` for its middle: the ends tell servers and paths apart.
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
    fn what_is_too_long_loses_its_middle_and_nothing_else() {
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
