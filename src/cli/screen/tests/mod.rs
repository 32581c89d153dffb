mod table;
mod time;
mod wrapped;

use super::*;

fn environment(variables: &[(&str, &str)]) -> Environment {
    variables.iter().copied().collect()
}

#[test]
fn colours_are_for_terminals_and_people_who_want_them() {
    let colors = |variables| Screen::of((80, 24), &environment(variables)).colors;
    assert!(colors(&[("TERM", "xterm")]));
    assert!(colors(&[("TERM", "xterm"), ("NO_COLOR", "")]));
    for variables in [&[][..], &[("TERM", "dumb")], &[("TERM", "xterm"), ("NO_COLOR", "1")]] {
        assert!(!colors(variables), "{variables:?}");
    }
    let screen = Screen { size: None, colors: true };
    assert_eq!(screen.paint(Tone::Bad, "x"), "\x1b[31mx\x1b[0m");
    assert_eq!(screen.paint(Tone::Plain, "x"), "x");
    assert_eq!(Screen::default().paint(Tone::Bad, "x"), "x");
}

#[test]
fn a_terminal_that_does_not_know_its_size_has_the_usual_one() {
    assert_eq!(Screen::of((0, 0), &environment(&[])).size, Some((80, usize::MAX)));
    assert_eq!(Screen::of((5, 3), &environment(&[])).size, Some((20, 3)));
    assert_eq!(Screen::default().width(), usize::MAX);
}
