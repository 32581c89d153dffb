//! Writes a kubeconfig: as a whole or not at all, for its owner only, and never over an input.

use std::{
    fs, io,
    io::Write as _,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use anyhow::Context as _;

/// Writes `text` to `path` with mode 0600.
pub(super) fn write(path: &Path, text: &str, inputs: &[PathBuf]) -> anyhow::Result<()> {
    if let Some(input) = inputs.iter().find(|input| is_same(path, input)) {
        anyhow::bail!(
            "{} is one of the kubeconfigs that were read ({}), which are never written; name another file",
            path.display(),
            input.display()
        );
    }
    replace(path, text).with_context(|| format!("{} cannot be written", path.display()))
}

fn replace(path: &Path, text: &str) -> io::Result<()> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = tempfile::Builder::new().prefix(".credbroker-").tempfile_in(dir)?; // 0600 from the start
    file.write_all(text.as_bytes())?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    fs::File::open(dir)?.sync_all()
}

/// Whether both paths name one file: the same directory entry, or the same inode.
fn is_same(output: &Path, input: &Path) -> bool {
    let entry = |path: &Path| {
        let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Some((fs::canonicalize(dir).ok()?, path.file_name()?.to_owned()))
    };
    let inode = |path: &Path| fs::metadata(path).map(|metadata| (metadata.dev(), metadata.ino())).ok();
    let same = |one: Option<_>, two| one.is_some() && one == two;
    same(entry(output), entry(input)) || inode(output).is_some_and(|output| inode(input) == Some(output))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn an_input_is_never_written_however_it_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        fs::write(path("config"), "original").unwrap();
        symlink(path("config"), path("link")).unwrap();
        fs::hard_link(path("config"), path("hard")).unwrap();
        fs::create_dir(path("sub")).unwrap();
        for output in ["config", "link", "hard", "sub/../config"] {
            for input in ["config", "link"] {
                let error = write(&path(output), "new", &[path(input)]).unwrap_err().to_string();
                assert!(error.contains("never written"), "{output} {input}: {error}");
            }
        }
        assert_eq!(fs::read_to_string(path("config")).unwrap(), "original");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 4, "no temporary file is left");
    }

    #[test]
    fn the_output_is_replaced_whole_and_readable_by_its_owner_only() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out");
        fs::write(&path, "a longer text that was there before").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        write(&path, "new", &[dir.path().join("config")]).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let error = write(&dir.path().join("absent/out"), "new", &[]).unwrap_err();
        assert!(format!("{error:#}").contains("cannot be written: "), "{error:#}");
    }
}
