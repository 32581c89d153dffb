//! Kubeconfigs with the definitions that `kubeconfig inject` moved out of another kubeconfig.

use std::path::{Path, PathBuf};

use crate::{problem::Report, reader::whole};
use credbroker_credential::document::Node;

/// The extension of a kubeconfig that names the file that its definitions are from.
pub const INJECTED: &str = "credbroker.io/injected";

/// The file that the definitions in the kubeconfig `path` are from, and that still identifies them; `None`: they are its
/// own.
pub(super) fn origin(path: &Path, root: &Node, report: &mut Report) -> Option<PathBuf> {
    let origin = super::extension(root, INJECTED)?.get("origin").and_then(Node::as_str);
    let Some(origin) = origin.map(PathBuf::from).filter(|origin| origin.is_absolute()) else {
        let message = format!(
            "the extension `{INJECTED}` does not name the file that the users are from; run `credbroker kubeconfig inject` again"
        );
        report.problem(whole(path), message);
        return None;
    };
    Some(origin)
}

#[cfg(test)]
mod tests;
