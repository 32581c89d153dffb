//! The fields of a `ClusterProfile` object, and the endpoint of its cluster.

use std::collections::HashSet;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::Uri;
use serde_json::Value;

use crate::profile::{ProfileError, ProfileName};
use credbroker_credential::{Cluster, text::shown};

/// The fields that the broker keeps: those that `ListClusters` shows, and the access providers.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterProfile {
    /// Its namespace and name in the hub.
    pub name: ProfileName,
    /// `spec.displayName`; may be empty.
    pub display_name: String,
    /// `spec.clusterManager.name`; may be empty.
    pub cluster_manager: String,
    /// `status.version.kubernetes`; may be empty.
    pub kubernetes_version: String,
    /// `status.properties`: names and values.
    pub properties: Vec<(String, String)>,
    /// `status.accessProviders`, then those of the deprecated `status.credentialProviders` that it does not name.
    pub access: Result<Vec<AccessProvider>, ProfileError>,
}

/// An access provider of a profile. Its endpoint is checked only if it is chosen: mistakes in other entries have no effect.
#[derive(Clone, Debug, PartialEq)]
pub struct AccessProvider {
    /// Its name.
    pub name: String,
    /// It is listed in `credentialProviders`.
    pub deprecated: bool,
    /// `cluster`, in the form of a kubeconfig's.
    pub(super) cluster: Value,
}

impl ClusterProfile {
    /// Reads the `spec` and `status` of an object. Fields that are only shown to people may be missing or malformed.
    pub fn read(name: ProfileName, spec: &Value, status: &Value) -> Self {
        let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
        let properties = status.get("properties").and_then(Value::as_array).map(Vec::as_slice);
        let property = |item: &Value| {
            let name = item.get("name")?.as_str()?.to_owned();
            Some((name, text(item.get("value"))))
        };
        Self {
            name,
            display_name: text(spec.get("displayName")),
            cluster_manager: text(spec.pointer("/clusterManager/name")),
            kubernetes_version: text(status.pointer("/version/kubernetes")),
            properties: properties.unwrap_or_default().iter().filter_map(property).collect(),
            access: access(status),
        }
    }
}

/// `accessProviders` wins over an entry of the same name in `credentialProviders`, the older name of the same list.
fn access(status: &Value) -> Result<Vec<AccessProvider>, ProfileError> {
    let mut all = listed(status, "accessProviders", false)?;
    let older = listed(status, "credentialProviders", true)?;
    let newer: HashSet<_> = all.iter().map(|newer| newer.name.clone()).collect();
    all.extend(older.into_iter().filter(|older| !newer.contains(&older.name)));
    Ok(all)
}

fn listed(status: &Value, list: &str, deprecated: bool) -> Result<Vec<AccessProvider>, ProfileError> {
    let at = format!("status.{list}");
    let items = match status.get(list) {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(items) => items.as_array().ok_or_else(|| ProfileError::at(&at, "must be a list"))?,
    };
    let (mut found, mut names) = (Vec::new(), HashSet::new());
    for (index, item) in items.iter().enumerate() {
        let wrong = |problem| ProfileError::at(&format!("{at}[{index}]"), problem);
        let item = item.as_object().ok_or_else(|| wrong("must be a map"))?;
        let name = item.get("name").and_then(Value::as_str);
        let name = name.ok_or_else(|| wrong("must be a map with a `name`"))?;
        if name.is_empty() {
            continue; // the schema of the CRD allows it, and no provider has that name
        }
        if !names.insert(name) {
            let problem = format!("names provider `{}` twice, so the endpoint is ambiguous", shown(name));
            return Err(ProfileError::at(&at, &problem));
        }
        let cluster = item.get("cluster").cloned().unwrap_or_default();
        found.push(AccessProvider { name: name.to_owned(), deprecated, cluster });
    }
    Ok(found)
}

/// Rules of the configuration for all endpoints.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct EndpointRules {
    /// A server may be `http://`.
    pub allow_http: bool,
}

const PROXY_SCHEMES: [&str; 3] = ["http", "https", "socks5"];

/// The endpoint that the `cluster` of an access provider names, without its extension. `at` is its path in the object.
pub(super) fn endpoint(cluster: &Value, at: &str, rules: EndpointRules) -> Result<Cluster, ProfileError> {
    if !matches!(cluster, Value::Null | Value::Object(_)) {
        return Err(ProfileError::at(at, "must be a map"));
    }
    let wrong = |key: &str, problem: &str| ProfileError::at(&format!("{at}.{key}"), problem);
    let value = |key| cluster.get(key).filter(|value| !value.is_null());
    let text =
        |key| value(key).map_or(Ok(""), |value| value.as_str().ok_or_else(|| wrong(key, "must be a string")));
    let flag = |key| {
        value(key)
            .map_or(Ok(false), |value| value.as_bool().ok_or_else(|| wrong(key, "must be true or false")))
    };
    let server = text("server")?;
    server_is_usable(server, rules).map_err(|problem| wrong("server", problem))?;
    // The path would name a file of the broker, and the writer of a profile must not choose one.
    if !text("certificate-authority")?.is_empty() {
        return Err(wrong(
            "certificate-authority",
            "is a path, but a ClusterProfile cannot refer to files; set `certificate-authority-data` instead",
        ));
    }
    // Go accepts line breaks in base64.
    let authorities = text("certificate-authority-data")?.replace(['\r', '\n'], "");
    let authorities = STANDARD
        .decode(authorities)
        .map_err(|_quotes_it| wrong("certificate-authority-data", "is not base64"))?;
    let proxy_url = text("proxy-url")?;
    if !proxy_url.is_empty() {
        let proxy = url(proxy_url, &PROXY_SCHEMES)
            .ok_or_else(|| wrong("proxy-url", "must be a URL with the scheme http, https or socks5"))?;
        // Every caller that can list the fleet would see it.
        if has_user(&proxy) {
            return Err(wrong("proxy-url", "contains a user; a ClusterProfile must not contain secrets"));
        }
    }
    Ok(Cluster {
        server: server.to_owned(),
        tls_server_name: text("tls-server-name")?.to_owned(),
        insecure_skip_tls_verify: flag("insecure-skip-tls-verify")?,
        certificate_authority_data: authorities.into(),
        proxy_url: proxy_url.to_owned(),
        disable_compression: flag("disable-compression")?,
        config: Bytes::new(),
    })
}

/// client-go reads an empty server as `http://localhost`. Without TLS the network can read the credential.
fn server_is_usable(server: &str, rules: EndpointRules) -> Result<(), &'static str> {
    if server.is_empty() {
        return Err("is empty");
    }
    let url = url(server, &["https", "http"]).filter(|url| !has_user(url) && url.query().is_none());
    match url.as_ref().and_then(Uri::scheme_str) {
        Some("https") => Ok(()),
        Some(_) if rules.allow_http => Ok(()),
        Some(_) => Err(
            "is http://, which would send the credential without TLS; to allow this, set `clusterProfiles.allowHttp: true`",
        ),
        None => Err("must be a URL like `https://host:6443`, without a user, a query, a fragment or blanks"),
    }
}

/// A URL of one of `schemes` that names a host. The parser drops a fragment, and takes any port and non-ASCII characters.
fn url(text: &str, schemes: &[&str]) -> Option<Uri> {
    let url: Uri = text.parse().ok()?;
    let (host, authority) = (url.host()?, url.authority()?);
    let port = url.port_u16().is_some() || authority.as_str().ends_with(host);
    let plain = text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#');
    let scheme = schemes.contains(&url.scheme_str()?);
    (scheme && plain && port && !host.is_empty()).then_some(url)
}

fn has_user(url: &Uri) -> bool {
    url.authority().is_some_and(|authority| authority.as_str().contains('@'))
}
