use super::super::*;

#[test]
fn columns_are_aligned_and_lines_have_no_trailing_blanks() {
    let rows = [["gke".to_owned(), "ß".to_owned()], ["a long name".to_owned(), String::new()]];
    assert_eq!(unfitted(["NAME", "X"], rows), "NAME         X\ngke          ß\na long name\n");
}

#[test]
fn widths_are_computed_once_for_all_rows() {
    let rows = (1..=100_000).map(|row| [row.to_string(), "x".repeat(row % 7), "y".to_owned()]);
    let text = unfitted(["ROW", "X", ""], rows);
    assert_eq!(text.lines().count(), 100_001);
    assert_eq!(text.lines().last(), Some("100000  xxxxx   y"));
}

#[test]
fn a_table_fits_its_screen() {
    let row =
        |name: &str| (Tone::Good, [name.to_owned(), "valid".to_owned(), "in 42m".to_owned(), "7".to_owned()]);
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
        "PROVIDER                  STATE  EXPIRES\n\
         gke                       valid  in 42m\n\
         arn:aws:eks:…/production  valid  in 42m\n"
    );
    assert!(text(40, true).contains("\x1b[32mvalid\x1b[0m  in 42m"));
    let unlimited = fitted(["PROVIDER", "STATE", "EXPIRES", "RUNS"], &rows, (1, &[3, 2]), Screen::default());
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
