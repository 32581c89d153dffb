//! What `credbroker setup` wrote, so that `--undo` removes exactly that.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use aws_lc_rs::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};

use crate::cli::files;

/// The file `setup.json`.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Manifest {
    /// The files that were written, and the SHA-256 of what was written.
    pub(super) files: BTreeMap<PathBuf, String>,
    /// The copy of the kubeconfig.
    pub(super) copy: Option<PathBuf>,
    /// A configuration that was there before, and the kubeconfigs that were added to it.
    pub(super) added: Option<(PathBuf, Vec<PathBuf>)>,
    /// Whether the socket unit was enabled.
    pub(super) units: bool,
    /// The program that the shim starts.
    pub(super) on_demand: Option<PathBuf>,
}

impl Manifest {
    pub(super) fn path(own: &Path) -> PathBuf {
        own.join("setup.json")
    }

    /// `None`: setup has not run.
    pub(super) fn read(own: &Path) -> anyhow::Result<Option<Self>> {
        let path = Self::path(own);
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).with_context(|| format!("{} cannot be read", path.display())),
        };
        let read = serde_json::from_slice(&text);
        read.map(Some).with_context(|| format!("{} is not a file of `credbroker setup`", path.display()))
    }

    pub(super) fn write(&self, own: &Path) -> anyhow::Result<()> {
        files::private_directory(own)?;
        files::write_private(&Self::path(own), &serde_json::to_string_pretty(self)?)
    }

    /// Whether setup may write `path`: it is not there, or it is as setup wrote it.
    pub(super) fn may_write(&self, path: &Path) -> bool {
        match fs::read(path) {
            Ok(contents) => self.files.get(path).is_some_and(|known| *known == hash(&contents)),
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        }
    }
}

pub(super) fn hash(contents: &[u8]) -> String {
    use std::fmt::Write as _;
    let mut text = String::with_capacity(64);
    for byte in digest(&SHA256, contents).as_ref() {
        let _infallible = write!(text, "{byte:02x}");
    }
    text
}
