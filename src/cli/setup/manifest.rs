//! What `credbroker setup` wrote, so that `--undo` removes exactly that.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use crate::cli::files;
use credbroker_plugin::Sha256;

/// The file `setup.json`.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Manifest {
    /// The files that were written, and the SHA-256 of what was written. If setup was interrupted, also of what it wrote
    /// before.
    files: BTreeMap<PathBuf, BTreeSet<String>>,
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
            Ok(contents) => self.files.get(path).is_some_and(|known| known.contains(&hash(&contents))),
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        }
    }

    /// The files that were written.
    pub(super) fn files(&self) -> impl Iterator<Item = &PathBuf> {
        self.files.keys()
    }

    /// Records that `contents` will be written to `path`, which may fail.
    pub(super) fn will_write(&mut self, path: &Path, contents: &str) {
        self.files.entry(path.to_owned()).or_default().insert(hash(contents.as_bytes()));
    }

    /// Records that `contents` were written to `path`.
    pub(super) fn has_written(&mut self, path: &Path, contents: &str) {
        self.files.insert(path.to_owned(), [hash(contents.as_bytes())].into());
    }
}

fn hash(contents: &[u8]) -> String {
    Sha256::of(contents).to_hex()
}
