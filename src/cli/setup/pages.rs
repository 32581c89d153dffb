//! Completions and man pages, generated from the command line.

use std::path::{Path, PathBuf};

use crate::cli::{
    complete::{Shell, script},
    man,
};

const NAME: &str = "credbroker";

/// Where files for a person's shells and `man` belong.
#[derive(Clone, Copy, Debug)]
pub(super) struct PagePlaces<'a> {
    /// `$XDG_DATA_HOME`, else `~/.local/share`.
    pub(super) data: &'a Path,
    /// `$XDG_CONFIG_HOME`, else `~/.config`.
    pub(super) config: &'a Path,
}

/// The paths of the completions and their contents.
pub(super) fn completions(places: PagePlaces<'_>) -> Vec<(PathBuf, String)> {
    vec![
        (places.data.join("bash-completion/completions").join(NAME), completion(Shell::Bash)),
        (places.data.join("zsh/site-functions/_credbroker"), completion(Shell::Zsh)),
        (places.config.join("fish/completions/credbroker.fish"), completion(Shell::Fish)),
    ]
}

fn completion(shell: Shell) -> String {
    script(shell, NAME)
}

/// The paths of the man pages and their contents: one page for each command.
pub(super) fn man_pages(places: PagePlaces<'_>) -> Vec<(PathBuf, String)> {
    let dir = places.data.join("man/man1");
    man::pages().into_iter().map(|(name, text)| (dir.join(name), text)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_has_a_page_and_each_shell_completes_it() {
        let places = PagePlaces { data: Path::new("/d"), config: Path::new("/c") };
        let pages = man_pages(places);
        let text = |name: &str| {
            let path = Path::new("/d/man/man1").join(name);
            &pages.iter().find(|(found, _)| *found == path).unwrap_or_else(|| panic!("{name}")).1
        };
        assert!(text("credbroker.1").contains(".TH credbroker 1"));
        assert!(text("credbroker-kubeconfig-wrap.1").contains("\\-\\-bare"));
        assert!(!pages.iter().any(|(path, _)| path.ends_with("credbroker-shim.1")));
        for (path, text) in completions(places) {
            assert!(text.contains("CREDBROKER_COMPLETE"), "{}", path.display());
        }
    }
}
