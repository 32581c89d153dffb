//! The clusters of a user's contexts: what its plugin gets if the caller sends none, and who verifies its credentials.

use std::{
    collections::{HashMap, HashSet},
    path::{Path, PathBuf},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;

use super::files::{Kubeconfig, Mode, Named, extension};
use crate::{
    file::{self, below},
    problem::{Report, lines},
};
use credbroker_credential::{Cluster, text::listed};

/// The cluster extension that plugins are given as `config`.
const EXTENSION: &str = "client.authentication.k8s.io/exec";

/// Why a context leads to no cluster.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct ContextError(String);

impl Kubeconfig {
    /// The names of the contexts; of one name the first.
    pub fn context_names(&self) -> Vec<String> {
        self.contexts().iter().map(|context| context.name.to_owned()).collect()
    }

    /// The context that kubectl uses without another one.
    pub fn current_context(&self) -> Option<&str> {
        let mut named = self.files.iter().filter_map(|file| file.root.get("current-context")?.as_str());
        named.find(|name| !name.is_empty())
    }

    /// The user of `context`, as client-go finds it.
    pub fn user_of(&self, context: &str) -> Option<Named<'_>> {
        let context = self.contexts().into_iter().find(|found| found.name == context)?;
        self.users().into_iter().find(|user| user.name == context.text("user"))
    }

    /// The cluster of `context`, as client-go gives it to a plugin.
    pub fn cluster_of(&self, context: &str) -> Result<Cluster, ContextError> {
        let Some(found) = self.contexts().into_iter().find(|found| found.name == context) else {
            let known = listed(&self.context_names());
            let unknown = format!("the kubeconfig has no context `{context}`; its contexts are: {known}");
            return Err(ContextError(unknown));
        };
        let cluster = self.cluster(found.text("cluster")).ok_or_else(|| {
            ContextError(format!("context `{context}` names no cluster that the kubeconfig defines"))
        })?;
        let report = Report::default();
        let read = cluster_of(&cluster, &mut HashMap::new(), &report);
        read.ok_or_else(|| ContextError(lines(&report.into_warnings())))
    }
}

/// A cluster or user: its file, by identity, and its name there.
type DefinitionRef<'a> = (&'a Path, &'a str);

fn reference<'a>(named: &Named<'a>) -> DefinitionRef<'a> {
    (named.identity, named.name)
}

/// The clusters that contexts lead to. Each is read once, and so is each file of authorities, however many contexts and
/// users share it; a problem with one is reported once, as a warning.
#[derive(Debug)]
pub(super) struct ContextClusters<'a> {
    /// Of a user, the clusters of the contexts that lead to it, until they are asked for.
    by_user: HashMap<DefinitionRef<'a>, Vec<Named<'a>>>,
    read: HashMap<DefinitionRef<'a>, Option<Cluster>>,
    files: HashMap<PathBuf, Bytes>,
}

impl<'a> ContextClusters<'a> {
    /// A context leads to the user and the cluster of the same file, or to the first ones of these names. In a list that
    /// is used as one kubeconfig (`Mode::Ambient`), client-go lets it lead to the first ones in any case.
    pub(super) fn of(kubeconfig: &'a Kubeconfig, mode: Mode) -> Self {
        let mut by_user: HashMap<_, Vec<_>> = HashMap::new();
        let mut lead = |context: &Named<'a>, users: &ByName<'a>, clusters: &ByName<'a>| {
            let (user, cluster) = (users.get(context.text("user")), clusters.get(context.text("cluster")));
            if let (Some(user), Some(cluster)) = (user, cluster) {
                by_user.entry(reference(user)).or_default().push(*cluster);
            }
        };
        let (users, clusters) = (by_name(kubeconfig.users()), by_name(kubeconfig.first_of_each("clusters")));
        for file in &kubeconfig.files {
            let (mut users, mut clusters) = (users.clone(), clusters.clone());
            users.extend(by_name(file.items("users")));
            clusters.extend(by_name(file.items("clusters")));
            file.items("contexts").for_each(|context| lead(&context, &users, &clusters));
        }
        if mode == Mode::Ambient {
            kubeconfig.contexts().iter().for_each(|context| lead(context, &users, &clusters));
        }
        Self { by_user, read: HashMap::new(), files: HashMap::new() }
    }

    /// The clusters of the contexts that lead to `user`. If one cannot be read there are none: the others would look like all.
    pub(super) fn of_user(&mut self, user: &Named<'a>, report: &Report) -> Vec<Cluster> {
        let mut seen = HashSet::new();
        let mut clusters = Vec::new();
        let named = self.by_user.remove(&reference(user)).unwrap_or_default();
        for named in named.into_iter().filter(|named| seen.insert(reference(named))) {
            let read = || cluster_of(&named, &mut self.files, report);
            let read = self.read.entry(reference(&named)).or_insert_with(read);
            match read {
                Some(cluster) if !clusters.contains(cluster) => clusters.push(cluster.clone()),
                Some(_) => {}
                None => return Vec::new(),
            }
        }
        clusters
    }
}

pub(super) type ByName<'a> = HashMap<&'a str, Named<'a>>;

pub(super) fn by_name<'a>(items: impl IntoIterator<Item = Named<'a>>) -> ByName<'a> {
    items.into_iter().map(|item| (item.name, item)).collect()
}

/// Reads a cluster. Why it cannot be read is only a warning. `files` are the authorities that were read.
pub(super) fn cluster_of(
    named: &Named<'_>,
    files: &mut HashMap<PathBuf, Bytes>,
    report: &Report,
) -> Option<Cluster> {
    report.as_warnings(|| {
        let before = report.problems();
        cluster(named, files, report).filter(|_| report.problems() == before)
    })
}

fn cluster(named: &Named<'_>, files: &mut HashMap<PathBuf, Bytes>, report: &Report) -> Option<Cluster> {
    let fields = named.cursor(format!("cluster `{}`", named.name), named.body, report).fields(&[])?;
    let text = |key| fields.get(key).and_then(|value| value.text()).unwrap_or_default().to_owned();
    let flag = |key| fields.get(key).and_then(|value| value.boolean()).unwrap_or_default();
    let server = text("server");
    if server.is_empty() {
        report.problem(named.place(), format!("cluster `{}` has no `server`", named.name));
    }
    let (data, file) = (text("certificate-authority-data"), text("certificate-authority"));
    let config = extension(named.body, EXTENSION).filter(|value| !value.is_null());
    Some(Cluster {
        server,
        tls_server_name: text("tls-server-name"),
        insecure_skip_tls_verify: flag("insecure-skip-tls-verify"),
        certificate_authority_data: authorities(named, &data, &file, files, report)?,
        proxy_url: text("proxy-url"),
        disable_compression: flag("disable-compression"),
        config: config.map(|value| value.to_json().to_string().into()).unwrap_or_default(),
    })
}

/// The PEM bundle: given as data, which wins, or as a file.
fn authorities(
    named: &Named<'_>,
    data: &str,
    file: &str,
    files: &mut HashMap<PathBuf, Bytes>,
    report: &Report,
) -> Option<Bytes> {
    let what = |problem: &str| format!("cluster `{}`: {problem}", named.name);
    if !data.is_empty() {
        let compact: String = data.split_ascii_whitespace().collect();
        let Ok(bytes) = STANDARD.decode(compact) else {
            report.problem(named.place(), what("certificate-authority-data is not base64"));
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
    report.follow(&path);
    let shown = path.display();
    if let Ok(Some(problem)) = file::distrust(&path) {
        report.refuse(named.place(), what(&format!("certificate-authority `{shown}`: {problem}")));
        return None;
    }
    match file::authorities(&path) {
        Ok(bytes) => Some(files.entry(path).or_insert(bytes.into()).clone()),
        Err(error) => {
            let problem = format!("certificate-authority `{shown}` cannot be read: {error}");
            report.problem(named.place(), what(&problem));
            None
        }
    }
}

#[cfg(test)]
mod tests;
