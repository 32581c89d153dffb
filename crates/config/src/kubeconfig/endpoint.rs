//! Reads one cluster.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;

use super::{Named, import::place};
use crate::{
    file::{self, below},
    problem::Report,
    reader::{Cursor, Dialect},
};
use credbroker_credential::{Cluster, document::Node};

/// The cluster extension that plugins are given as `config`.
const EXTENSION: &str = "client.authentication.k8s.io/exec";

pub(super) fn cluster(
    named: &Named<'_>,
    files: &mut HashMap<PathBuf, Bytes>,
    report: &mut Report,
) -> Option<Cluster> {
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
    report.sources.follow(&path);
    if let Ok(Some(problem)) = file::distrust(&path) {
        report.refuse(place(named), what(&format!("certificate-authority `{}`: {problem}", path.display())));
        return None;
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
    let value = super::extension(cluster, EXTENSION).filter(|value| !value.is_null());
    value.map(|value| value.to_json().to_string().into()).unwrap_or_default()
}
