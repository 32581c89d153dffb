//! The files of a list, merged as client-go merges them: of users, clusters or contexts of one name the first wins whole.

use std::{
    collections::HashSet,
    fs,
    path::{Path, PathBuf},
};

use aws_lc_rs::digest::{SHA256, digest};

use crate::{
    file,
    problem::{Location, Report},
    schema::{Cursor, Dialect},
};
use credbroker_credential::document::{Node, Position};
use credbroker_plugin::Environment;

/// The lists of a kubeconfig, in the plural of what an item of it calls its body.
const LISTS: [&str; 4] = ["clusters", "contexts", "users", "extensions"];

/// Symbolic links that are followed, as many as the kernel follows.
const LINKS: usize = 40;

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
    pub(super) list: Vec<PathBuf>,
    /// In the order of the list.
    pub files: Vec<KubeFile>,
}

/// One kubeconfig.
#[derive(Debug)]
pub struct KubeFile {
    /// Absolute, as it was named.
    pub path: PathBuf,
    /// The path that identifies its definitions: absolute, with symbolic links followed, but not kubelet's `..data`.
    pub identity: PathBuf,
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

impl<'a> Named<'a> {
    pub(super) fn place(&self) -> Location<'a> {
        Location { file: self.file, at: self.at }
    }

    pub(super) fn text(&self, key: &str) -> &'a str {
        self.body.get(key).and_then(Node::as_str).unwrap_or_default()
    }

    /// The part `node` of it, which messages call `path`.
    pub(super) fn cursor(&self, path: String, node: &'a Node, report: &'a Report) -> Cursor<'a> {
        Cursor::new(self.file, Dialect::Kubeconfig, node, report).below(path, node)
    }
}

impl Kubeconfig {
    /// The paths that a command reads, and how: the one that a user named, else those of the environment.
    pub fn chosen(named: Option<&Path>, env: &Environment) -> (Vec<PathBuf>, Mode) {
        let Some(path) = named else { return (Self::default_paths(env), Mode::Ambient) };
        (vec![std::path::absolute(path).unwrap_or_else(|_| path.to_owned())], Mode::Named)
    }

    /// The files of `KUBECONFIG`, or `~/.kube/config`. None of them need exist.
    pub fn default_paths(env: &Environment) -> Vec<PathBuf> {
        let Some(list) = env.set("KUBECONFIG") else {
            return env.set("HOME").map(|home| Path::new(home).join(".kube/config")).into_iter().collect();
        };
        let mut seen = HashSet::new();
        let absolute = std::env::split_paths(list).filter_map(|path| std::path::absolute(path).ok());
        absolute.filter(|path| seen.insert(path.clone())).collect()
    }

    pub(crate) fn read(paths: &[PathBuf], mode: Mode, report: &Report) -> Self {
        let mut seen = HashSet::new();
        let files = paths.iter().map(|path| (path, defining_file(path)));
        let files = files.filter(|(_, identity)| seen.insert(identity.clone()));
        let files: Vec<_> = files.filter_map(|(path, identity)| read(path, identity, mode, report)).collect();
        Self { list: paths.to_vec(), files }
    }

    /// The users; of one name the first.
    pub fn users(&self) -> Vec<Named<'_>> {
        self.first_of_each("users")
    }

    pub(super) fn cluster(&self, name: &str) -> Option<Named<'_>> {
        self.first_of_each("clusters").into_iter().find(|item| item.name == name)
    }

    /// The contexts; of one name the first.
    pub fn contexts(&self) -> Vec<Named<'_>> {
        self.first_of_each("contexts")
    }

    pub(super) fn first_of_each(&self, list: &'static str) -> Vec<Named<'_>> {
        let mut seen = HashSet::new();
        let all = self.files.iter().flat_map(|file| file.items(list));
        all.filter(|item| seen.insert(item.name)).collect()
    }
}

impl KubeFile {
    /// The items of one of its lists, in order: what has a name and a body. The rest was reported when it was read.
    pub(super) fn items<'a>(&'a self, list: &'static str) -> impl Iterator<Item = Named<'a>> + use<'a> {
        let (file, identity) = (self.path.as_path(), self.identity.as_path());
        let items = self.root.get(list).and_then(Node::as_sequence).unwrap_or_default();
        items.iter().filter_map(move |item| {
            let (name, body) = (item.get("name")?.as_str()?, item.get(body_of(list))?);
            Some(Named { name, body, file, identity, at: item.at })
        })
    }
}

fn body_of(list: &str) -> &str {
    list.trim_end_matches('s')
}

/// The document in block style, as YAML that a YAML 1.1 parser (kubectl's) and a YAML 1.2 parser read back unchanged: a
/// string that either could read as another value is in quotes.
pub fn yaml(node: &Node) -> Result<String, serde_saphyr::ser::Error> {
    let options = serde_saphyr::ser_options! { prefer_block_scalars: false };
    serde_saphyr::to_string_with_options(node, options)
}

/// The extension `name` of a kubeconfig or of a cluster.
pub fn extension<'a>(of: &'a Node, name: &str) -> Option<&'a Node> {
    let extensions = of.get("extensions")?.as_sequence()?;
    let is_it = |item: &&Node| item.get("name").and_then(Node::as_str) == Some(name);
    extensions.iter().find(is_it)?.get("extension")
}

fn read(path: &Path, identity: PathBuf, mode: Mode, report: &Report) -> Option<KubeFile> {
    let before = report.problems();
    let bytes = file::kubeconfig(path, report);
    if bytes.is_none() && mode == Mode::Named && report.problems() == before {
        report.problem_at_start(Location::whole(path), "there is no such file");
    }
    let bytes = bytes?;
    let root = file::tree(path, &bytes, report)?;
    check(&Cursor::new(path, Dialect::Kubeconfig, &root, report));
    (report.problems() == before).then(|| {
        let digest = digest(&SHA256, &bytes).as_ref().into();
        KubeFile { path: path.to_owned(), identity, root, digest }
    })
}

/// Reports what client-go refuses to load as a whole.
fn check(root: &Cursor<'_>) {
    let Some(fields) = root.fields(&[]) else { return };
    for (key, expected) in [("apiVersion", "v1"), ("kind", "Config")] {
        let is_fine = |text: &str| text == expected || text.is_empty();
        if let Some(value) = fields.get(key).filter(|value| !value.node.as_str().is_some_and(is_fine)) {
            value.problem(format!("a kubeconfig has `{key}: {expected}`"));
        }
    }
    for list in LISTS {
        let Some(items) = fields.get(list) else { continue };
        check_names(&items);
        for item in items.items().unwrap_or_default() {
            let Some(entries) = item.fields(&[]) else { continue };
            let Some(body) = entries.get(body_of(list)).filter(|_| list != "extensions") else { continue };
            if let Some(extensions) = body.fields(&[]).and_then(|body| body.get("extensions")) {
                check_names(&extensions);
            }
        }
    }
}

fn check_names(items: &Cursor<'_>) {
    let mut seen = HashSet::new();
    for item in items.node.as_sequence().unwrap_or_default() {
        let place = Location { at: item.at, ..items.place() };
        match item.get("name").and_then(Node::as_str) {
            None => items.report.problem(
                place,
                "an item needs a `name`, which is text; write it in quotes if it looks like something else",
            ),
            Some(name) if !seen.insert(name) => {
                items.report.problem(place, format!("the name `{name}` appears twice in one list"));
            }
            Some(_) => {}
        }
    }
}

/// The path that identifies the kubeconfig at `path`, which is absolute: the same in every process, whichever of its
/// names it is reached by. So symbolic links are followed, and no `..` is left.
///
/// The link `..data` is not: kubelet points it to another directory whenever a `ConfigMap` or Secret changes, and the file
/// stays the same for all that mount it. A file that does not exist is identified by the path as it is.
fn defining_file(path: &Path) -> PathBuf {
    let mut path = path.to_owned();
    for _ in 0..LINKS {
        let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else { break };
        let Ok(dir) = fs::canonicalize(dir) else { break };
        let place = dir.join(name);
        match fs::read_link(&place) {
            Ok(target) if !target.starts_with("..data") => path = dir.join(target),
            _ => return place,
        }
    }
    fs::canonicalize(&path).unwrap_or(path)
}

#[cfg(test)]
mod tests;
