//! Kubeconfigs with the definitions that `kubeconfig inject` moved out of another kubeconfig.

use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use crate::{
    config::{problem::Report, reader::whole},
    document::Node,
};

/// The extension of a kubeconfig that names the file that its definitions are from.
pub const INJECTED: &str = "credbroker.io/injected";

/// The file that the definitions in the kubeconfig `path` are from, and that still identifies them; `None`: they are its
/// own. The file decides which plugin another kubeconfig's clients get, so only its owner may be able to write it.
pub(super) fn origin(path: &Path, root: &Node, report: &mut Report) -> Option<PathBuf> {
    let origin = super::extension(root, INJECTED)?.get("origin").and_then(Node::as_str);
    let Some(origin) = origin.map(PathBuf::from).filter(|origin| origin.is_absolute()) else {
        let message = format!(
            "the extension `{INJECTED}` does not name the file that the users are from; run `credbroker kubeconfig inject` again"
        );
        report.problem(whole(path), message);
        return None;
    };
    let us = rustix::process::geteuid().as_raw();
    let is_safe =
        fs::metadata(path).is_ok_and(|found| [us, 0].contains(&found.uid()) && found.mode() & 0o022 == 0);
    if !is_safe {
        let message = "has definitions of another kubeconfig, so it must belong to the broker's own uid or to root, and only its owner may be able to write it";
        report.problem(whole(path), message);
    }
    Some(origin)
}

#[cfg(test)]
mod tests;
