//! Kubeconfigs, merged as client-go merges them: of two users, clusters or contexts of one name the first wins whole.

mod check;
mod cluster;
mod context;
mod defining;
mod endpoint;
mod hub;
mod import;
mod injected;
#[cfg(test)]
mod tests;

use std::{
    collections::HashSet,
    path::{Path, PathBuf},
};

use aws_lc_rs::digest::{SHA256, digest};

use self::check::check;
use super::{
    file,
    problem::Report,
    reader::{Cursor, Dialect, whole},
};
use credbroker_credential::document::{Node, Position};

pub use context::ContextError;
use defining::defining_file;
pub use import::is_shim;
pub(super) use import::variables;
pub use injected::INJECTED;

/// Who named the files.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Mode {
    /// A configuration or a flag: a problem or a missing file is an error.
    Named,
    /// `KUBECONFIG` or its default: missing files are skipped, and a broken user does not stop the others.
    Ambient,
}

/// The files of a list that are there, in order.
#[derive(Debug)]
pub struct Kubeconfig {
    /// As they were named, whether they are there or not.
    list: Vec<PathBuf>,
    files: Vec<KubeFile>,
}

/// One kubeconfig.
#[derive(Debug)]
pub struct KubeFile {
    /// Absolute, as it was named.
    pub path: PathBuf,
    /// The path that identifies its definitions: absolute, with symbolic links followed, but not kubelet's `..data`.
    pub identity: PathBuf,
    /// Whether it has definitions that `kubeconfig inject` moved here from the file `identity`.
    pub is_injected: bool,
    /// A map.
    pub root: Node,
    /// SHA-256 of its contents.
    pub(super) digest: Box<[u8]>,
}

/// An item of one of the lists: `{name: …, user: {…}}`.
#[derive(Clone, Copy, Debug)]
pub struct Named<'a> {
    /// Its name.
    pub name: &'a str,
    /// What is called that.
    pub body: &'a Node,
    /// The file that defines it, which its relative paths are relative to.
    pub file: &'a Path,
    /// What identifies that file.
    pub identity: &'a Path,
    /// Its position in the file.
    pub at: Position,
}

impl Kubeconfig {
    /// Reads what of `paths` is there.
    pub(crate) fn read(paths: &[PathBuf], mode: Mode, report: &mut Report) -> Self {
        let mut seen = HashSet::new();
        let files = paths.iter().map(|path| (path, defining_file(path)));
        let files = files.filter(|(_, identity)| seen.insert(identity.clone()));
        let files: Vec<_> = files.filter_map(|(path, identity)| read(path, identity, mode, report)).collect();
        let is_injected = |path: &PathBuf| files.iter().any(|file| file.is_injected && file.path == *path);
        Self { list: paths.iter().filter(|path| !is_injected(path)).cloned().collect(), files }
    }

    /// In the order of the list.
    pub fn files(&self) -> &[KubeFile] {
        &self.files
    }

    /// The users; of one name the first.
    pub fn users(&self) -> Vec<Named<'_>> {
        self.first_of_each("users", "user")
    }

    fn clusters(&self) -> Vec<Named<'_>> {
        self.first_of_each("clusters", "cluster")
    }

    /// The contexts; of one name the first.
    pub fn contexts(&self) -> Vec<Named<'_>> {
        self.first_of_each("contexts", "context")
    }

    fn first_of_each(&self, list: &'static str, body: &'static str) -> Vec<Named<'_>> {
        let mut seen = HashSet::new();
        let all = self.files.iter().flat_map(|file| file.items(list, body));
        all.filter(|item| seen.insert(item.name)).collect()
    }
}

/// The extension `name` of a kubeconfig or of a cluster.
pub fn extension<'a>(of: &'a Node, name: &str) -> Option<&'a Node> {
    let extensions = of.get("extensions")?.as_sequence()?;
    let is_it = |item: &&Node| item.get("name").and_then(Node::as_str) == Some(name);
    extensions.iter().find(is_it)?.get("extension")
}

impl KubeFile {
    /// The items of one of its lists, in order: what has a name and a body. The rest was reported when it was read.
    fn items<'a>(&'a self, list: &str, body: &'static str) -> impl Iterator<Item = Named<'a>> + use<'a> {
        let (file, identity) = (self.path.as_path(), self.identity.as_path());
        let items = self.root.get(list).and_then(Node::as_sequence).unwrap_or_default();
        items.iter().filter_map(move |item| {
            Some(Named {
                name: item.get("name")?.as_str()?,
                body: item.get(body)?,
                file,
                identity,
                at: item.at,
            })
        })
    }
}

fn read(path: &Path, identity: PathBuf, mode: Mode, report: &mut Report) -> Option<KubeFile> {
    let before = report.problems.len();
    let bytes = file::kubeconfig(path, report);
    if bytes.is_none() && mode == Mode::Named && report.problems.len() == before {
        report.problem_at_start(whole(path), "there is no such file");
    }
    let bytes = bytes?;
    let root = file::tree(path, &bytes, report)?;
    check(&Cursor::new(path, Dialect::Kubeconfig, &root), report);
    let origin = injected::origin(path, &root, report).filter(|_| mode == Mode::Named);
    (report.problems.len() == before).then(|| {
        let digest = digest(&SHA256, &bytes).as_ref().into();
        let (is_injected, identity) = (origin.is_some(), origin.unwrap_or(identity));
        KubeFile { path: path.to_owned(), identity, is_injected, root, digest }
    })
}
