use std::fmt::Write as _;

use super::*;

#[test]
fn the_help_of_each_command() {
    let mut command = Cli::command().term_width(100);
    command.build();
    let mut text = String::new();
    append_help(&mut command, &mut text);
    insta::assert_snapshot!(text);
}

fn append_help(command: &mut clap::Command, text: &mut String) {
    let help = command.render_long_help();
    writeln!(text, "$ {} --help\n{help}", command.get_bin_name().unwrap_or("credbroker")).unwrap();
    for subcommand in command.get_subcommands_mut() {
        if !subcommand.is_hide_set() && subcommand.get_name() != "help" {
            append_help(subcommand, text);
        }
    }
}

#[test]
fn a_timeout_has_a_unit() {
    for value in ["500ms", "2s", "1.5s", "1h30m"] {
        assert!(Cli::try_parse_from(["credbroker", "status", "--timeout", value]).is_ok(), "{value}");
        assert!(Cli::try_parse_from(["credbroker", "refresh", "gke", "--timeout", value]).is_ok(), "{value}");
        assert!(Cli::try_parse_from(["credbroker", "get", "--timeout", value]).is_ok(), "{value}");
        let wrap = ["credbroker", "kubeconfig", "wrap", "--timeout", value];
        assert!(Cli::try_parse_from(wrap).is_ok(), "{value}");
    }
    for (value, expected) in [
        ("5d", "invalid value '5d' for '--timeout <DURATION>': unknown unit"),
        ("30", "`30` has no unit; for seconds, write `30s`"),
    ] {
        let error =
            Cli::try_parse_from(["credbroker", "status", "--timeout", value]).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn the_version_has_the_commit_of_a_release() {
    assert_eq!(version("0.1.0", Some("3f2a9c1")), "0.1.0 (3f2a9c1)");
    assert_eq!(version("0.1.0", None), "0.1.0");
    assert_eq!(version("0.1.0", Some("")), "0.1.0");
}
