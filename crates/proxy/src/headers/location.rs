//! Where an answer sends a client.

use http::{Uri, uri::Authority};

use crate::path::Address;

/// `location` of an answer of `server`, as a path of the proxy. `None`: it is not below the URL of the server, or programs read
/// it differently.
pub(super) fn rewrite(location: &str, server: &Uri, address: &Address) -> Option<String> {
    if location.is_empty() || !location.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\') {
        return None;
    }
    let base = server.path().trim_end_matches('/');
    let (reference, suffix) = location.split_at(location.find(['?', '#']).unwrap_or(location.len()));
    let path = if let Some(rest) = reference.strip_prefix("//") {
        of_server(server.scheme_str()?, rest, server)?.to_owned()
    } else if let Some((scheme, rest)) =
        reference.split_once("://").filter(|(scheme, _)| !scheme.contains('/'))
    {
        of_server(scheme, rest, server)?.to_owned()
    } else if reference.starts_with('/') {
        reference.to_owned()
    } else if reference.split('/').next().is_some_and(|first| first.contains(':')) {
        // Another scheme, such as `mailto:`.
        return None;
    } else if reference.is_empty() {
        format!("{base}{}", address.path)
    } else {
        let directory = address.path.rsplit_once('/').map_or("", |(directory, _)| directory);
        format!("{base}{directory}/{reference}")
    };
    let path = without_dots(&path)?;
    let path = path.strip_prefix(base).filter(|path| path.starts_with('/'))?;
    Some(format!("{}{path}{suffix}", address.target))
}

/// The path of a URL, if it is of `server`.
fn of_server<'a>(scheme: &str, rest: &'a str, server: &Uri) -> Option<&'a str> {
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let authority: Authority = authority.parse().ok()?;
    let theirs = server.authority()?;
    let port = |authority: &Authority| authority.port_u16().or_else(|| default_port(scheme));
    let is_same = server.scheme_str()?.eq_ignore_ascii_case(scheme)
        && authority.host().eq_ignore_ascii_case(theirs.host())
        && port(&authority) == port(theirs)
        && !authority.as_str().contains('@');
    is_same.then_some(if path.is_empty() { "/" } else { path })
}

fn default_port(scheme: &str) -> Option<u16> {
    match scheme.to_ascii_lowercase().as_str() {
        "https" => Some(443),
        "http" => Some(80),
        _ => None,
    }
}

/// A path without `.` and `..`, as a client would resolve it. `None`: they lead out of it, or are encoded.
fn without_dots(path: &str) -> Option<String> {
    let mut kept: Vec<&str> = Vec::new();
    let mut segments = path.split('/').skip(1).peekable();
    while let Some(segment) = segments.next() {
        match &*segment.to_ascii_lowercase().replace("%2e", ".") {
            "." | ".." if segment.contains('%') => return None,
            "." => {}
            ".." => {
                kept.pop()?;
            }
            _ => {
                kept.push(segment);
                continue;
            }
        }
        // `a/..` is a directory.
        if segments.peek().is_none() {
            kept.push("");
        }
    }
    Some(kept.iter().fold(String::with_capacity(path.len()), |path, segment| path + "/" + segment))
}
