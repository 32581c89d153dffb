//! What one run has on disk, for itself and only as long as it lasts.

use std::{
    fs::{self, Permissions},
    io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use tempfile::TempDir;

/// Removed when dropped.
#[derive(Debug)]
pub(super) struct RunDirectory {
    /// Empty when the plugin starts.
    pub(super) working: PathBuf,
    /// Not there, unless the shim makes it.
    pub(super) marker: PathBuf,
    _removed_on_drop: TempDir,
}

impl RunDirectory {
    pub(super) fn new(base: &Path) -> io::Result<Self> {
        let private = Permissions::from_mode(0o700);
        let whole = tempfile::Builder::new().prefix("run-").permissions(private).tempdir_in(base)?;
        let (working, marker) = (whole.path().join("cwd"), whole.path().join("recursion"));
        fs::create_dir(&working)?;
        fs::set_permissions(&working, Permissions::from_mode(0o700))?;
        Ok(Self { working, marker, _removed_on_drop: whole })
    }
}
