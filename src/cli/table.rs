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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_lines_have_no_trailing_blanks() {
        let rows = [["gke".to_owned(), "ß".to_owned()], ["a long name".to_owned(), String::new()]];
        assert_eq!(text(["NAME", "X"], &rows), "NAME         X\ngke          ß\na long name\n");
    }
}
