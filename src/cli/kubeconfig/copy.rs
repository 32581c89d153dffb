//! Copies of kubeconfigs, which `kubeconfig wrap` writes.

use std::{
    collections::HashSet,
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

use super::{
    keep::is_unchanged,
    merge::merged,
    record::Record,
    wrap::{self, WrapArgs},
};
use credbroker_config as config;
use credbroker_config::kubeconfig::{Kubeconfig, Mode, is_shim};
use credbroker_credential::document::Node;
use credbroker_plugin::Environment;

/// Writes the copy to `path`.
pub(in crate::cli) fn wrap_to(
    path: &Path,
    environment: &Environment,
    shim: &Path,
    out: &mut dyn Write,
) -> anyhow::Result<u8> {
    wrap::run(&WrapArgs::to(path), environment, shim, out, &mut io::stderr())
}

/// The files of `KUBECONFIG` that exist, if one of their users runs a plugin or the shim; a copy counts as the files that
/// it was written from.
pub(in crate::cli) fn originals_with_plugins(environment: &Environment) -> anyhow::Result<Vec<PathBuf>> {
    let kubeconfig =
        config::read_kubeconfig(&originals(Kubeconfig::default_paths(environment)), Mode::Ambient)?;
    let served = config::definitions(&kubeconfig, environment).served;
    let runs_shim = kubeconfig.users().iter().any(|user| user.body.get("exec").is_some_and(is_shim));
    let files = kubeconfig.files().iter().map(|file| file.path.clone());
    Ok(if served.is_empty() && !runs_shim { Vec::new() } else { files.collect() })
}

/// Whether there is nothing but a copy at `path`, so that another copy may replace it.
pub(in crate::cli) fn is_place_for_copy(path: &Path) -> bool {
    match fs::read(path) {
        Ok(contents) => contents.trim_ascii().is_empty() || earlier(path).is_some(),
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

/// Whether the copy at `path` has nothing that a person added or changed, except for the current context.
pub(in crate::cli) fn is_unchanged_copy(path: &Path) -> bool {
    earlier(path).is_some_and(|(record, copy)| is_unchanged(&copy, &record))
}

/// What `kubeconfig wrap` wrote to `path`, and the file as it is now, with absolute paths; `None`: another program wrote it.
pub(super) fn earlier(path: &Path) -> Option<(Record, Node)> {
    let kubeconfig = config::read_kubeconfig(&[std::path::absolute(path).ok()?], Mode::Named).ok()?;
    let record = Record::read(&kubeconfig.files().first()?.root)?;
    Some((record, merged(&kubeconfig, |_, _| {})))
}

/// The files of `paths`, and instead of a copy those that it was written from.
pub(super) fn originals(paths: Vec<PathBuf>) -> Vec<PathBuf> {
    let sources = |path: &PathBuf| {
        let read = config::read_kubeconfig(std::slice::from_ref(path), Mode::Ambient).ok()?;
        Some(Record::read(&read.files().first()?.root)?.sources).filter(|sources| !sources.is_empty())
    };
    let mut seen = HashSet::new();
    let all = paths.into_iter().flat_map(|path| sources(&path).unwrap_or_else(|| vec![path]));
    all.filter(|path| seen.insert(path.clone())).collect()
}
