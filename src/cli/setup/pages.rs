//! Completions and man pages, generated from the command line.

use std::path::{Path, PathBuf};

use clap::{Command, CommandFactory as _};
use clap_complete::{
    Generator,
    shells::{Bash, Fish, Zsh},
};
use clap_mangen::Man;

use crate::cli::Cli;

const NAME: &str = "credbroker";

/// Where files for a person's shells and `man` belong.
#[derive(Clone, Copy, Debug)]
pub(super) struct Places<'a> {
    /// `$XDG_DATA_HOME`, else `~/.local/share`.
    pub(super) data: &'a Path,
    /// `$XDG_CONFIG_HOME`, else `~/.config`.
    pub(super) config: &'a Path,
}

/// The paths of the completions and their contents.
pub(super) fn completions(places: Places<'_>) -> Vec<(PathBuf, String)> {
    vec![
        (places.data.join("bash-completion/completions").join(NAME), completion(Bash)),
        (places.data.join("zsh/site-functions/_credbroker"), completion(Zsh)),
        (places.config.join("fish/completions/credbroker.fish"), completion(Fish)),
    ]
}

fn completion(shell: impl Generator) -> String {
    let mut bytes = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), NAME, &mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The paths of the man pages and their contents: one page for each command.
pub(super) fn man_pages(places: Places<'_>) -> Vec<(PathBuf, String)> {
    let mut command = Cli::command().disable_help_subcommand(true);
    // Gives the commands below their whole names.
    command.build();
    let mut pages = Vec::new();
    add(&command, &places.data.join("man/man1"), &mut pages);
    pages
}

fn add(command: &Command, dir: &Path, pages: &mut Vec<(PathBuf, String)>) {
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        add(below, dir, pages);
    }
    let page = Man::new(command.clone());
    let mut bytes = Vec::new();
    // Writing to a vector does not fail.
    drop(page.render(&mut bytes));
    pages.push((dir.join(page.get_filename()), String::from_utf8_lossy(&bytes).into_owned()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_has_a_page_and_each_shell_completes_it() {
        let places = Places { data: Path::new("/d"), config: Path::new("/c") };
        let pages = man_pages(places);
        let text = |name: &str| {
            let path = Path::new("/d/man/man1").join(name);
            &pages.iter().find(|(found, _)| *found == path).unwrap_or_else(|| panic!("{name}")).1
        };
        assert!(text("credbroker.1").contains(".TH credbroker 1"));
        assert!(text("credbroker-kubeconfig-wrap.1").contains("\\-\\-bare"));
        assert!(!pages.iter().any(|(path, _)| path.ends_with("credbroker-shim.1")));
        for (path, text) in completions(places) {
            assert!(text.contains("healthcheck"), "{}", path.display());
        }
    }
}
