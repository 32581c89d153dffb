//! What a plugin is told about its cluster when the caller does not say: the contexts that use its user.

use std::{fs, path::Path};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;

use super::{Kubeconfig, Named, import::place};
use crate::{
    config::{
        file::below,
        problem::Report,
        reader::{Cursor, Dialect},
    },
    credential::Cluster,
    document::Node,
};

/// The cluster extension that plugins are given as `config`.
const EXTENSION: &str = "client.authentication.k8s.io/exec";

impl Kubeconfig {
    /// The distinct clusters of the contexts of `user`. If one of them cannot be read there are none: the others
    /// would wrongly look like all there are.
    pub(super) fn clusters_of(&self, user: &str, report: &mut Report) -> Vec<Cluster> {
        self.clusters_where(|context| text(context.body, "user").as_deref() == Some(user), report)
    }

    /// The cluster of one context.
    pub(super) fn clusters_of_context(&self, name: &str, report: &mut Report) -> Vec<Cluster> {
        self.clusters_where(|context| context.name == name, report)
    }

    fn clusters_where(&self, wanted: impl Fn(&Named<'_>) -> bool, report: &mut Report) -> Vec<Cluster> {
        let contexts = self.contexts();
        let in_use = contexts.iter().filter(|context| wanted(context));
        let all = self.clusters();
        let mut clusters = Vec::new();
        for name in in_use.filter_map(|context| text(context.body, "cluster")) {
            let Some(named) = all.iter().find(|cluster| cluster.name == name) else { continue };
            let mut found = Report::default();
            let read = cluster(named, &mut found);
            let wrong = !found.problems.is_empty();
            report.append_as_warnings(found);
            match read {
                Some(cluster) if !wrong && !clusters.contains(&cluster) => clusters.push(cluster),
                Some(_) if !wrong => {}
                _ => return Vec::new(),
            }
        }
        clusters
    }
}

fn text(node: &Node, key: &str) -> Option<String> {
    node.get(key).and_then(Node::as_str).map(str::to_owned)
}

fn cluster(named: &Named<'_>, report: &mut Report) -> Option<Cluster> {
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
        certificate_authority_data: authorities(named, &data, &file, report)?,
        proxy_url,
        disable_compression,
        config: extension(named.body),
    })
}

/// The PEM bundle: given as data, which wins, or as a file.
fn authorities(named: &Named<'_>, data: &str, file: &str, report: &mut Report) -> Option<Bytes> {
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
    match fs::read(&path) {
        Ok(bytes) => Some(bytes.into()),
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
