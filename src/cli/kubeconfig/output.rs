//! The file that a kubeconfig is written to: never an input, and never one that credbroker did not write.

use std::path::{Path, PathBuf};

use super::record::Record;
use crate::{
    cli::files::{Locked, is_same},
    config::{self, kubeconfig::Mode},
    document::Node,
};

/// A file that may be replaced, locked.
#[derive(Debug)]
pub(super) struct Output {
    name: PathBuf,
    file: Locked,
    /// What `kubeconfig wrap` wrote there before, and the file as it is now, with absolute paths.
    pub(super) earlier: Option<(Record, Node)>,
}

impl Output {
    /// `-` is standard output: `None`.
    pub(super) fn named(path: Option<&Path>) -> Option<&Path> {
        path.filter(|path| *path != Path::new("-"))
    }

    /// Locks `path`, which must not be one of `inputs`. A file that exists must be empty or have the mark of
    /// `kubeconfig wrap`, unless `force` is set.
    pub(super) fn open(path: &Path, inputs: &[PathBuf], force: bool) -> anyhow::Result<Self> {
        let (name, shown) = (path.to_owned(), path.display());
        if let Some(input) = inputs.iter().find(|input| is_same(path, input)) {
            let input = input.display();
            anyhow::bail!(
                "{shown} is one of the kubeconfigs that were read ({input}), which are never written; name another file"
            );
        }
        let file = Locked::take(path)?;
        let contents = file.read()?.unwrap_or_default();
        let earlier = if contents.trim_ascii().is_empty() { None } else { earlier(path) };
        anyhow::ensure!(
            force || earlier.is_some() || contents.trim_ascii().is_empty(),
            "{shown} exists, and `credbroker kubeconfig wrap` did not write it; name another file, or overwrite it with --force"
        );
        Ok(Self { name, file, earlier })
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

/// What `kubeconfig wrap` wrote to `path`, and the file as it is now; `None`: another program wrote it.
pub(super) fn earlier(path: &Path) -> Option<(Record, Node)> {
    let kubeconfig = config::read_kubeconfig(&[std::path::absolute(path).ok()?], Mode::Named).ok()?;
    let record = Record::read(&kubeconfig.files().first()?.root)?;
    Some((record, super::merge::merged(&kubeconfig, |_, _| {})))
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use credbroker_test_support::private_directory;

    use super::*;

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
                let error = Output::open(&path(output), &[path(input)], true).unwrap_err().to_string();
                assert!(error.contains("never written"), "{output} {input}: {error}");
            }
        }
        assert_eq!(fs::read_to_string(path("config")).unwrap(), "original");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 4, "no lock is left");
    }

    #[test]
    fn a_file_without_the_mark_is_overwritten_only_by_force() {
        let dir = private_directory();
        let path = |name: &str| dir.path().join(name);
        let shim = "users: [{name: u, user: {exec: {command: credbroker-exec}}}]";
        for (name, text) in
            [("text", "precious"), ("kubeconfig", "users: []"), ("shims", shim), ("broken", "a: [")]
        {
            fs::write(path(name), text).unwrap();
            let error = Output::open(&path(name), &[], false).unwrap_err().to_string();
            assert!(error.contains("did not write it") && error.contains("--force"), "{error}");
            assert_eq!(fs::read_to_string(path(name)).unwrap(), text);
            Output::open(&path(name), &[], true).unwrap().write("new").unwrap();
            assert_eq!(fs::read_to_string(path(name)).unwrap(), "new");
        }
        fs::write(path("empty"), "\n").unwrap();
        for name in ["empty", "absent"] {
            assert_eq!(Output::open(&path(name), &[], false).unwrap().write("new").unwrap(), None);
        }
    }
}
