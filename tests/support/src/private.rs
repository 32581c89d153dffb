//! Files and directories that the broker and its clients trust, under any umask.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    path::Path,
};

use tempfile::TempDir;

/// A directory that goes when this is dropped, and that only its owner can use.
pub fn private_directory() -> TempDir {
    let private = Permissions::from_mode(0o700);
    tempfile::Builder::new().permissions(private).tempdir().expect("a temporary directory")
}

/// Writes a file that only its owner can read and write.
pub fn private_file(path: &Path, text: &str) {
    fs::write(path, text).expect("a file");
    fs::set_permissions(path, Permissions::from_mode(0o600)).expect("a private file");
}
