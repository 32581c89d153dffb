//! The clusters of the contexts that use a user: what its plugin gets when the caller sends none, and where its
//! credentials can be verified.

use std::{
    collections::{HashMap, HashSet},
    path::{Path, PathBuf},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;

use super::{Kubeconfig, Named, import::place};
use crate::{
    config::{
        file::{self, below},
        problem::Report,
        reader::{Cursor, Dialect},
    },
    credential::Cluster,
    document::Node,
};

/// The cluster extension that plugins are given as `config`.
const EXTENSION: &str = "client.authentication.k8s.io/exec";

/// The clusters that contexts lead to. Each is read once, and so is each file of authorities, however many contexts and
/// users share it; what is wrong with one is reported once, as a warning.
#[derive(Debug)]
pub(super) struct Clusters<'a> {
    /// The names of the clusters of a user's contexts.
    by_user: HashMap<&'a str, Vec<&'a str>>,
    named: HashMap<&'a str, Named<'a>>,
    /// `None`: it cannot be read.
    read: HashMap<&'a str, Option<Cluster>>,
    files: HashMap<PathBuf, Bytes>,
}

/// Why is in the report.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unreadable;

impl<'a> Clusters<'a> {
    pub(super) fn of(kubeconfig: &'a Kubeconfig) -> Self {
        let mut by_user: HashMap<_, Vec<_>> = HashMap::new();
        for context in kubeconfig.contexts() {
            if let (Some(user), Some(cluster)) = (text(context.body, "user"), text(context.body, "cluster")) {
                by_user.entry(user).or_default().push(cluster);
            }
        }
        let named = kubeconfig.clusters().into_iter().map(|cluster| (cluster.name, cluster)).collect();
        Self { by_user, named, read: HashMap::new(), files: HashMap::new() }
    }

    /// The distinct clusters of the contexts of `user`. If one of them cannot be read there are none: the others
    /// would wrongly look like all there are.
    pub(super) fn of_user(&mut self, user: &str, report: &mut Report) -> Vec<Cluster> {
        let mut seen = HashSet::new();
        let mut names = self.by_user.get(user).cloned().unwrap_or_default();
        names.retain(|name| seen.insert(*name));
        let mut clusters = Vec::new();
        for name in names {
            match self.named(name, report) {
                Ok(Some(cluster)) if !clusters.contains(&cluster) => clusters.push(cluster),
                Ok(_) => {}
                Err(Unreadable) => return Vec::new(),
            }
        }
        clusters
    }

    /// The cluster of that name; `None`: there is none.
    pub(super) fn named(&mut self, name: &str, report: &mut Report) -> Result<Option<Cluster>, Unreadable> {
        let Some(named) = self.named.get(name).copied() else { return Ok(None) };
        if !self.read.contains_key(name) {
            let mut found = Report::default();
            let read = cluster(&named, &mut self.files, &mut found).filter(|_| found.problems.is_empty());
            report.append_as_warnings(found);
            self.read.insert(named.name, read);
        }
        self.read.get(name).cloned().flatten().map(Some).ok_or(Unreadable)
    }
}

fn text<'a>(node: &'a Node, key: &str) -> Option<&'a str> {
    node.get(key).and_then(Node::as_str)
}

fn cluster(named: &Named<'_>, files: &mut HashMap<PathBuf, Bytes>, report: &mut Report) -> Option<Cluster> {
    let root = Cursor::new(named.file, Dialect::Kubeconfig, named.body);
    let fields = root.below(format!("cluster `{}`", named.name), named.body).fields(&[], report)?;
    let mut text = |key| fields.text(key, report).unwrap_or_default().to_owned();
    let (server, tls_server_name, proxy_url) = (text("server"), text("tls-server-name"), text("proxy-url"));
    let (data, file) = (text("certificate-authority-data"), text("certificate-authority"));
    let mut flag = |key| fields.get(key).and_then(|value| value.boolean(report)).unwrap_or_default();
    let (insecure_skip_tls_verify, disable_compression) =
        (flag("insecure-skip-tls-verify"), flag("disable-compression"));
    if server.is_empty() {
        report.problem(place(named), format!("cluster `{}` has no `server`", named.name));
    }
    Some(Cluster {
        server,
        tls_server_name,
        insecure_skip_tls_verify,
        certificate_authority_data: authorities(named, &data, &file, files, report)?,
        proxy_url,
        disable_compression,
        config: extension(named.body),
    })
}

/// The PEM bundle: given as data, which wins, or as a file.
fn authorities(
    named: &Named<'_>,
    data: &str,
    file: &str,
    files: &mut HashMap<PathBuf, Bytes>,
    report: &mut Report,
) -> Option<Bytes> {
    let what = |problem: &str| format!("cluster `{}`: {problem}", named.name);
    if !data.is_empty() {
        let compact: String = data.split_ascii_whitespace().collect();
        let Ok(bytes) = STANDARD.decode(compact) else {
            report.problem(place(named), what("certificate-authority-data is not base64"));
            return None;
        };
        return Some(bytes.into());
    }
    if file.is_empty() {
        return Some(Bytes::new());
    }
    let path = below(named.file.parent().unwrap_or(Path::new("/")), file);
    if let Some(bytes) = files.get(&path) {
        return Some(bytes.clone());
    }
    match file::authorities(&path) {
        Ok(bytes) => Some(files.entry(path).or_insert(bytes.into()).clone()),
        Err(error) => {
            let problem = format!("certificate-authority `{}` cannot be read: {error}", path.display());
            report.problem(place(named), what(&problem));
            None
        }
    }
}

fn extension(cluster: &Node) -> Bytes {
    let extensions = cluster.get("extensions").and_then(Node::as_sequence).unwrap_or_default();
    let ours = extensions.iter().find(|item| item.get("name").and_then(Node::as_str) == Some(EXTENSION));
    let value = ours.and_then(|item| item.get("extension")).filter(|value| !value.is_null());
    value.map(|value| value.to_json().to_string().into()).unwrap_or_default()
}
