//! Reads the path and the query of a request, and writes those that are forwarded. Pure.
//!
//! What is forwarded is not what was received: each segment is decoded once, checked, and encoded again, so that no program
//! behind the proxy reads the path differently. Below `…/proxy/` of a pod, service or node, where the path belongs to a
//! program in the cluster, path and query pass as they are, with the checks of `opaque`.

mod actions;
mod opaque;
mod query;
mod segment;
mod target;

use std::sync::Arc;

use credbroker_request_info::RequestInfo;
use http::{Method, StatusCode, Uri, Version, uri::PathAndQuery};

pub use target::TargetName;

use crate::status::Refused;

/// Longest path and query together, in bytes: label selectors are long.
pub const LONGEST: usize = 32 * 1024;

/// The methods that the API server has a verb for. `OPTIONS` is what browsers ask first.
const METHODS: [Method; 6] =
    [Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::PATCH, Method::DELETE];

/// Where a request goes, and what it does there.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Address {
    /// From the first segments.
    pub target: Arc<TargetName>,
    /// What the API server gets, percent-encoded. It begins with a slash.
    pub path: String,
    /// What the API server gets: the bytes that the client sent. Never empty.
    pub query: Option<String>,
    attributes: RequestInfo,
}

impl Address {
    /// Reads a request.
    ///
    /// # Errors
    ///
    /// Two programs could read the path or the query differently, the API server would not accept it, or it names no target.
    pub fn read(method: &Method, uri: &Uri, version: Version) -> Result<Self, Refused> {
        if !METHODS.contains(method) {
            let message = "the method must be GET, HEAD, POST, PUT, PATCH or DELETE";
            return Err(Refused::new(StatusCode::METHOD_NOT_ALLOWED, message));
        }
        // HTTP/2 has the authority in a separate field, which the listener compares with its own name.
        let is_origin_form =
            version >= Version::HTTP_2 || (uri.scheme().is_none() && uri.authority().is_none());
        let path = uri.path().strip_prefix('/').filter(|_| is_origin_form);
        let path =
            path.ok_or_else(|| Refused::bad_request("the request line must have a path, and not a URL"))?;
        if uri.path_and_query().is_some_and(|whole| whole.as_str().len() > LONGEST) {
            let message = "path and query are longer than 32 KiB";
            return Err(Refused::new(StatusCode::URI_TOO_LONG, message));
        }
        let (target, rest) = target::split(path)?;
        let (path, is_opaque) = serialize(rest)?;
        let query = uri.query().filter(|query| !query.is_empty());
        if !is_opaque {
            query::check(query.unwrap_or_default())?;
        }
        let attributes = actions::read(method, &path, query.unwrap_or_default())?;
        Ok(Self { target: Arc::new(target), path, query: query.map(str::to_owned), attributes })
    }

    /// What the request does, as the API server reads what is forwarded.
    pub fn attributes(&self) -> &RequestInfo {
        &self.attributes
    }

    /// Path and query for the API server, below `base`: the path of the server's URL, such as `/k8s/clusters/c-1`, or empty.
    ///
    /// # Errors
    ///
    /// The base is not a valid path.
    pub fn path_and_query(&self, base: &str) -> Result<PathAndQuery, http::uri::InvalidUri> {
        let base = base.trim_end_matches('/');
        match &self.query {
            Some(query) => format!("{base}{}?{query}", self.path),
            None => format!("{base}{}", self.path),
        }
        .try_into()
    }
}

/// The path to forward, and whether a program behind the API server reads it and the query.
fn serialize(path: &str) -> Result<(String, bool), Refused> {
    let mut written = String::with_capacity(path.len() + 1);
    let mut rest = Some(path);
    let mut depth = 0;
    while let Some(here) = rest {
        let (raw, after) = segment::first(here);
        written.push('/');
        if raw.is_empty() {
            if after.is_none() {
                break;
            }
            return Err(Refused::bad_request("the path has an empty segment (`//`)"));
        }
        let plain = segment::decode(raw)?;
        written.extend(segment::encode(&plain));
        depth += 1;
        if plain == "proxy" && actions::is_proxied(&written, depth) {
            if let Some(after) = after {
                opaque::check(after)?;
                written.push('/');
                written.push_str(after);
            }
            return Ok((written, true));
        }
        rest = after;
    }
    Ok((written, false))
}

#[cfg(test)]
mod tests;
