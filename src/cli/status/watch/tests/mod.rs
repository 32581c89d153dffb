mod runs;

use super::*;
use crate::cli::overview::tests::{now, overview};

fn at(width: usize) -> String {
    let mut runs = Runs::default();
    let mut overview = overview();
    for added in [0, 0, 3, 1, 7] {
        overview.credentials[0].runs += added;
        runs.read(&overview.credentials);
    }
    let screen = Screen { size: Some((width, 24)), colors: false };
    frame(&overview, &runs, Some("the broker's socket is gone"), screen, now())
}

#[test]
fn a_frame_fits_terminals_of_80_and_40_columns() {
    for width in [40, 80] {
        let frame = at(width);
        assert!(frame.lines().all(|line| line.chars().count() <= width), "{frame}");
        insta::assert_snapshot!(format!("{width}_columns"), frame);
    }
}

#[test]
fn a_frame_that_is_too_high_says_how_much_is_missing() {
    let mut out = Vec::new();
    let screen = Screen { size: Some((80, 3)), colors: false };
    AlternateScreen::enter(&mut out).draw("a\nb\nc\nd\n", screen);
    let drawn = String::from_utf8(out).unwrap();
    assert!(drawn.contains("\x1b[Ha\x1b[K\r\nb\x1b[K\r\n… 2 more lines\x1b[K\x1b[J"), "{drawn:?}");
    assert!(drawn.starts_with("\x1b[?1049h") && drawn.ends_with("\x1b[?1049l"), "{drawn:?}");
    let mut out = Vec::new();
    AlternateScreen::enter(&mut out).draw("a\nb\nc\n", screen);
    assert!(String::from_utf8(out).unwrap().contains("c\x1b[K\x1b[J"));
}
