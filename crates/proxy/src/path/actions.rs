//! What a request does. A guard decides on these attributes, and this is the only place where they are made.

use credbroker_request_info::{RequestInfo, has_valid_options};
use http::Method;

use crate::status::Refused;

/// Segments up to the subresource: `apis`, group, version, `namespaces`, namespace, resource, name and subresource.
const DEEPEST: usize = 8;

/// Reads what is forwarded, and refuses more than the API server does: what few clients send, and programs read differently.
pub(super) fn read(method: &Method, path: &str, query: &str) -> Result<RequestInfo, Refused> {
    let info =
        RequestInfo::of(method.as_str(), path, query).map_err(|why| Refused::bad_request(why.to_string()))?;
    let mut segments = info.path.trim_matches('/').split('/');
    let prefix = segments.next().unwrap_or_default();
    if !matches!(prefix, "api" | "apis") && ["api", "apis"].iter().any(|it| prefix.eq_ignore_ascii_case(it)) {
        return Err(Refused::bad_request("`api` and `apis` must be lower case"));
    }
    if !info.is_resource {
        return Ok(info);
    }
    // Behind the version, and behind the group.
    let first = segments.nth(if info.api_prefix == "api" { 1 } else { 2 });
    if let Some(verb @ ("watch" | "proxy")) = first {
        return Err(Refused::bad_request(format!("paths with the verb `{verb}` are deprecated")));
    }
    let names = [&info.api_group, &info.api_version, &info.resource, &info.subresource];
    if !names.into_iter().all(|name| name.bytes().all(is_of_name)) {
        let message =
            "group, version, resource and subresource can have lower-case letters, digits, `-` and `.` only";
        return Err(Refused::bad_request(message));
    }
    if matches!(&*info.verb, "list" | "watch" | "deletecollection") && !has_valid_options(query) {
        return Err(Refused::bad_request(
            "a selector, `limit` or `timeoutSeconds` in the query is not valid",
        ));
    }
    Ok(info)
}

/// Whether a path of `depth` segments ends with the subresource `proxy`.
pub(super) fn is_proxied(path: &str, depth: usize) -> bool {
    // The resource is not in front of `proxy` where the path is deeper.
    let info = (depth <= DEEPEST).then(|| RequestInfo::of("GET", path, ""));
    matches!(info, Some(Ok(info)) if info.subresource == "proxy" && info.parts.len() == 3)
}

fn is_of_name(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.')
}
