//! Man pages, generated from the command line: one for each command.

use std::{fs, io::Write, os::unix::fs::PermissionsExt as _, path::PathBuf};

use anyhow::Context as _;
use clap::Command;
use clap_mangen::Man;

/// Write the man pages of all commands into a directory
///
/// Packages install them below share/man/man1.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  credbroker man ~/.local/share/man/man1")]
pub(super) struct ManArgs {
    /// Directory, which must exist
    #[arg(value_name = "DIRECTORY")]
    directory: PathBuf,
}

/// Writes the pages of `command` and all commands below it.
pub(super) fn run(args: &ManArgs, command: Command, out: &mut dyn Write) -> anyhow::Result<u8> {
    let pages = pages(command);
    for (name, text) in &pages {
        let path = args.directory.join(name);
        let written = fs::write(&path, text)
            .and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(0o644)));
        written.with_context(|| format!("cannot write {}", path.display()))?;
    }
    writeln!(out, "wrote {} pages to {}", pages.len(), args.directory.display())?;
    Ok(0)
}

/// The names of the pages and their texts.
pub(super) fn pages(command: Command) -> Vec<(String, String)> {
    let mut command = command.disable_help_subcommand(true);
    // Gives the commands below their whole names.
    command.build();
    let mut pages = Vec::new();
    add(&command, &mut pages);
    pages
}

fn add(command: &Command, pages: &mut Vec<(String, String)>) {
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        add(below, pages);
    }
    let (page, mut text) = (Man::new(command.clone()), Vec::new());
    // Writing to a vector does not fail.
    drop(page.render(&mut text));
    pages.push((page.get_filename(), String::from_utf8_lossy(&text).into_owned()));
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::cli::Cli;

    #[test]
    fn each_command_has_a_page() {
        let directory = credbroker_test_support::private_directory();
        let mut out = Vec::new();
        run(&ManArgs { directory: directory.path().to_owned() }, Cli::command(), &mut out).unwrap();
        let read = |name: &str| fs::read_to_string(directory.path().join(name)).unwrap_or_default();
        assert!(read("credbroker.1").contains(".TH credbroker 1"));
        assert!(read("credbroker-status.1").contains("\\-\\-watch"));
        assert!(read("credbroker-kubeconfig-wrap.1").contains(".SH SYNOPSIS"));
        assert!(!directory.path().join("credbroker-shim.1").exists(), "it is hidden");
        let error =
            run(&ManArgs { directory: directory.path().join("none") }, Cli::command(), &mut out).unwrap_err();
        assert!(error.to_string().starts_with("cannot write"), "{error}");
    }
}
