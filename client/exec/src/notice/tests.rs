use super::*;

#[test]
fn nothing_that_a_terminal_obeys_is_shown() {
    for (line, shown) in [
        ("Code: ABCD-EFGH", "Code: ABCD-EFGH"),
        ("Größe 日本語 👍\ttab", "Größe 日本語 👍\ttab"),
        ("\u{1b}]0;title\u{7}\u{1b}[2J", "\u{fffd}]0;title\u{fffd}\u{fffd}[2J"),
        ("one\r\ntwo\u{9b}2J\u{85}", "one\u{fffd}\u{fffd}two\u{fffd}2J\u{fffd}"),
        ("exe\u{202e}gpj\u{2066}\u{200b}\u{feff}", "exe\u{fffd}gpj\u{fffd}\u{fffd}\u{fffd}"),
    ] {
        assert_eq!(visible(line), shown);
    }
}

#[test]
fn the_waiting_line_gives_way_to_the_plugins_lines_and_to_the_answer() {
    let (mut err, source) = (Vec::new(), Source::Provider { name: "gke".into(), definition: None });
    with_notice("x", &source, &mut err, |_notice| ());
    assert!(err.is_empty());
    let mut shown = Shown { err: &mut err, is_waiting: false };
    shown.waits("waiting");
    shown.line("code");
    shown.line("\u{1b}more");
    shown.clear();
    shown.waits("again");
    shown.clear();
    assert_eq!(str::from_utf8(&err).unwrap(), "waiting\r\x1b[Kcode\n\u{fffd}more\nagain\r\x1b[K");
}
