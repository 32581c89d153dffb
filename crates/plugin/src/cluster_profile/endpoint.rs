//! The endpoint of a cluster.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::Uri;
use serde_json::{Map, Value};

use crate::ProfileError;
use credbroker_credential::Cluster;

/// Rules of the configuration for all endpoints.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct EndpointRules {
    /// A server may be `http://`.
    pub allow_http: bool,
}

/// Schemes of proxies that clients support.
const PROXY_SCHEMES: [&str; 3] = ["http", "https", "socks5"];

/// The endpoint that the `cluster` of an access provider names, without its extension. `at` is its path in the object.
pub(super) fn endpoint(cluster: &Value, at: &str, rules: EndpointRules) -> Result<Cluster, ProfileError> {
    let empty = Map::new();
    let fields = match cluster {
        Value::Null => &empty,
        Value::Object(fields) => fields,
        _ => return Err(ProfileError::Malformed { field: at.to_owned(), expected: "a map" }),
    };
    let read = ClusterFields { fields, at };
    let server = read.text("server")?;
    server_is_usable(server, rules).map_err(|problem| read.invalid("server", problem))?;
    // The path would name a file of the broker, and the writer of a profile must not choose one.
    if !read.text("certificate-authority")?.is_empty() {
        return Err(read.invalid(
            "certificate-authority",
            "is a path, which means nothing here; the profile must carry `certificate-authority-data`",
        ));
    }
    // Go accepts line breaks in base64.
    let authorities = read.text("certificate-authority-data")?.replace(['\r', '\n'], "");
    let authorities = STANDARD
        .decode(authorities)
        .map_err(|_quotes_it| read.invalid("certificate-authority-data", "is not base64"))?;
    let proxy_url = read.text("proxy-url")?;
    if !proxy_url.is_empty() {
        let proxy = url(proxy_url, &PROXY_SCHEMES)
            .ok_or_else(|| read.invalid("proxy-url", "must be a URL of scheme http, https or socks5"))?;
        // Every caller that can list the fleet would see it.
        if has_user(&proxy) {
            return Err(read.invalid("proxy-url", "names a user; a ClusterProfile holds no secrets"));
        }
    }
    Ok(Cluster {
        server: server.to_owned(),
        tls_server_name: read.text("tls-server-name")?.to_owned(),
        insecure_skip_tls_verify: read.flag("insecure-skip-tls-verify")?,
        certificate_authority_data: authorities.into(),
        proxy_url: proxy_url.to_owned(),
        disable_compression: read.flag("disable-compression")?,
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
            "is http://, which would send the credential without TLS; set `clusterProfiles.allowHttp: true` if that is meant",
        ),
        None => Err("must be a URL like `https://host:6443`, without a user, a query, a fragment or blanks"),
    }
}

/// A URL of one of `schemes` that names a host. The parser drops a fragment, and accepts any port and characters
/// outside ASCII.
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

struct ClusterFields<'a> {
    fields: &'a Map<String, Value>,
    at: &'a str,
}

impl<'a> ClusterFields<'a> {
    fn text(&self, key: &str) -> Result<&'a str, ProfileError> {
        match self.fields.get(key) {
            None | Some(Value::Null) => Ok(""),
            Some(Value::String(text)) => Ok(text),
            Some(_) => Err(ProfileError::Malformed { field: self.field(key), expected: "a string" }),
        }
    }

    fn flag(&self, key: &str) -> Result<bool, ProfileError> {
        match self.fields.get(key) {
            None | Some(Value::Null) => Ok(false),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(_) => Err(ProfileError::Malformed { field: self.field(key), expected: "true or false" }),
        }
    }

    fn invalid(&self, key: &str, problem: &'static str) -> ProfileError {
        ProfileError::Invalid { field: self.field(key), problem }
    }

    fn field(&self, key: &str) -> String {
        format!("{}.{key}", self.at)
    }
}
