//! The file that a kubeconfig is written to: never an input, and never one that another command wrote.

use std::path::{Path, PathBuf};

use crate::cli::files::{Locked, is_same};

/// A file that is not an input, locked.
#[derive(Debug)]
pub(super) struct Output {
    name: PathBuf,
    file: Locked,
}

impl Output {
    /// `-` is standard output: `None`.
    pub(super) fn named(path: Option<&Path>) -> Option<&Path> {
        path.filter(|path| *path != Path::new("-"))
    }

    /// Locks `path`, which must not be one of `inputs`. A file that is not empty is only replaced if `may_replace` says
    /// so: `command` wrote it, or a person wants it. It is asked when no other program can change the file.
    pub(super) fn open(
        path: &Path,
        inputs: &[PathBuf],
        command: &str,
        may_replace: impl FnOnce() -> bool,
    ) -> anyhow::Result<Self> {
        if let Some(input) = inputs.iter().find(|input| is_same(path, input)) {
            let (shown, input) = (path.display(), input.display());
            anyhow::bail!(
                "{shown} is one of the kubeconfigs that were read ({input}), which are never written; name another file"
            );
        }
        let file = Locked::take(path)?;
        let contents = file.read()?.unwrap_or_default();
        anyhow::ensure!(
            contents.trim_ascii().is_empty() || may_replace(),
            "{} has contents that `credbroker kubeconfig {command}` did not write; name another file, or overwrite it with --force",
            path.display()
        );
        Ok(Self { name: path.to_owned(), file })
    }

    /// Replaces the file by one with `text` and mode 0600. Returns what a person should know about it.
    pub(super) fn write(&self, text: &str) -> anyhow::Result<Option<String>> {
        self.file.write_private(text)?;
        let target = self.file.target_of_link();
        Ok(target.map(|real| {
            let name = self.name.display();
            format!("{name} is a symbolic link; the file that it leads to was written: {}", real.display())
        }))
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use credbroker_test_support::private_directory;

    use super::*;

    fn open(path: &Path, inputs: &[PathBuf], may_replace: bool) -> anyhow::Result<Output> {
        Output::open(path, inputs, "x", || may_replace)
    }

    #[test]
    fn an_input_is_never_written_however_it_is_named() {
        let dir = private_directory();
        let path = |name: &str| dir.path().join(name);
        fs::write(path("config"), "original").unwrap();
        symlink(path("config"), path("link")).unwrap();
        fs::hard_link(path("config"), path("hard")).unwrap();
        fs::create_dir(path("sub")).unwrap();
        for output in ["config", "link", "hard", "sub/../config"] {
            for input in ["config", "link"] {
                let error = open(&path(output), &[path(input)], true).unwrap_err().to_string();
                assert!(error.contains("never written"), "{output} {input}: {error}");
            }
        }
        assert_eq!(fs::read_to_string(path("config")).unwrap(), "original");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 4, "no lock is left");
    }

    #[test]
    fn a_file_with_contents_is_replaced_only_if_that_is_allowed() {
        let dir = private_directory();
        let path = |name: &str| dir.path().join(name);
        fs::write(path("text"), "precious").unwrap();
        let error = open(&path("text"), &[], false).unwrap_err().to_string();
        assert!(
            error.contains("`credbroker kubeconfig x` did not write") && error.contains("--force"),
            "{error}"
        );
        assert_eq!(fs::read_to_string(path("text")).unwrap(), "precious");
        open(&path("text"), &[], true).unwrap().write("new").unwrap();
        assert_eq!(fs::read_to_string(path("text")).unwrap(), "new");
        fs::write(path("empty"), "\n").unwrap();
        for name in ["empty", "absent"] {
            assert_eq!(open(&path(name), &[], false).unwrap().write("new").unwrap(), None);
        }
    }
}
