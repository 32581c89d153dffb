use super::*;

const NONE: [(&str, &str); 0] = [];

#[test]
fn a_program_has_a_separate_terminal_and_its_output_is_a_pipe() {
    let script = "test -t 0 && test -t 2 && ! test -t 1 && read answer </dev/tty && echo \"$answer\"; exit 3";
    let mut terminal = Terminal::start("sh", ["-c", script], NONE);
    terminal.types("hello\n");
    let (status, stdout, shown) = terminal.end();
    assert_eq!((status.code(), stdout.as_str()), (Some(3), "hello\n"), "{shown}");
}

#[test]
fn ctrl_c_interrupts_the_program() {
    let mut terminal = Terminal::start("sh", ["-c", "trap 'exit 9' INT; echo ready >&2; read never"], NONE);
    terminal.wait_for("ready");
    terminal.interrupt();
    assert_eq!(terminal.end().0.code(), Some(9));
}

#[test]
#[should_panic(expected = "does not show")]
fn a_program_that_ends_is_not_waited_for() {
    Terminal::start("true", [""; 0], NONE).wait_for("text");
}
