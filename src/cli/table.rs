//! Tables for people: columns as wide as their widest cell.

use std::io::{self, Write};

/// Prints `rows` under `head`, left-aligned, two spaces between columns.
pub(super) fn print<const N: usize>(
    out: &mut dyn Write,
    head: [&str; N],
    rows: &[[String; N]],
) -> io::Result<()> {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.chain(head.get(column).map(|cell| cell.chars().count())).max().unwrap_or_default()
    };
    let mut line = |cells: &[&str]| {
        let mut text = String::new();
        for (column, cell) in cells.iter().enumerate() {
            text.push_str(cell);
            let padding = width(column).saturating_sub(cell.chars().count()) + 2;
            text.extend(std::iter::repeat_n(' ', padding));
        }
        writeln!(out, "{}", text.trim_end())
    };
    line(&head)?;
    rows.iter().try_for_each(|row| line(&row.each_ref().map(String::as_str)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_lines_have_no_trailing_blanks() {
        let mut out = Vec::new();
        let rows = [["gke".to_owned(), "ß".to_owned()], ["a long name".to_owned(), String::new()]];
        print(&mut out, ["NAME", "X"], &rows).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "NAME         X\ngke          ß\na long name\n");
    }
}
