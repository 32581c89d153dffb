//! The copy of the kubeconfig that `credbroker setup` writes and removes.

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
};

use super::{
    keep::is_unchanged,
    wrap::{self, WrapArgs, earlier, originals},
};
use crate::{
    config::{
        self,
        kubeconfig::{Kubeconfig, Mode, is_shim},
    },
    plugin::Environment,
};

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

/// Whether the copy at `path` has nothing that a person added or changed, except for the current context.
pub(in crate::cli) fn is_unchanged_copy(path: &Path) -> bool {
    earlier(path).is_some_and(|(record, copy)| is_unchanged(&copy, &record))
}
