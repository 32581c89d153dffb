//! What a request to a Kubernetes API server does, as the API server itself reads it.
//!
//! [`RequestInfo::of`] mirrors `RequestInfoFactory.NewRequestInfo` of `k8s.io/apiserver` 0.35, with the API prefixes `api` and
//! `apis` and the feature `AuthorizeWithSelectors`. All of it is pure. The test `differential` compares it with the original.

mod fields;
mod labels;
mod options;
mod query;

use std::fmt;

use options::ListOptions;
pub use query::Query;

/// What the API server derives from the method, the path and the query. Fields that do not apply are empty.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct RequestInfo {
    /// Whether the request is for a resource. If not, only `path` and `verb` are set, and `api_prefix` for a version of a group.
    pub is_resource: bool,
    /// The path without percent-encoding.
    pub path: String,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete` or `deletecollection`; `proxy` or `watch` if the path
    /// begins with them; empty for a resource and another method. For no resource, the method in lower case.
    pub verb: String,
    /// `api` or `apis`.
    pub api_prefix: String,
    /// Empty for the core group.
    pub api_group: String,
    /// Version of the group.
    pub api_version: String,
    /// A request for a namespace has its name here too.
    pub namespace: String,
    /// The resource in the plural, as in the path.
    pub resource: String,
    /// For example `status` or `exec`.
    pub subresource: String,
    /// From the path, or from the field selector of a list or watch.
    pub name: String,
    /// The path from the resource on.
    pub parts: Vec<String>,
    /// The selector of a list, watch or deletecollection, as the query has it.
    pub field_selector: String,
    /// The same of labels.
    pub label_selector: String,
}

/// The API server refuses the request as well, or reads it differently from other programs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Unreadable {
    /// The path or the query has a `%` without two hexadecimal digits behind it.
    Escape,
    /// The path or a selector is not UTF-8.
    Encoding,
    /// The path ends after `watch` or `proxy`.
    Incomplete,
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Escape => "the path has a `%` without two hexadecimal digits behind it",
            Self::Encoding => "the path or a selector is not UTF-8",
            Self::Incomplete => "the path ends where a resource has to follow",
        })
    }
}

impl std::error::Error for Unreadable {}

impl RequestInfo {
    /// Reads a request. `path` and `query` are percent-encoded, as the request line has them.
    pub fn of(method: &str, path: &str, query: &str) -> Result<Self, Unreadable> {
        let path = String::from_utf8(query::unescape(path, false).ok_or(Unreadable::Escape)?);
        let path = path.map_err(|_invalid| Unreadable::Encoding)?;
        let mut info = Self { verb: method.to_lowercase(), ..Self::default() };
        let has_rest = info.read(method, &path, &Query::of(query));
        info.path = path;
        has_rest.map(|()| info)
    }

    fn read(&mut self, method: &str, path: &str, query: &Query) -> Result<(), Unreadable> {
        let trimmed = path.trim_matches('/');
        let parts: Vec<&str> = if trimmed.is_empty() { Vec::new() } else { trimmed.split('/').collect() };
        let (prefix, group, rest) = match *parts {
            [prefix @ "api", ref rest @ ..] if rest.len() >= 2 => (prefix, "", rest),
            [prefix @ "apis", group, ref rest @ ..] if rest.len() >= 2 => (prefix, group, rest),
            ["apis", ..] if parts.len() == 3 => {
                // A version of a group is not a resource.
                "apis".clone_into(&mut self.api_prefix);
                return Ok(());
            }
            _ => return Ok(()),
        };
        let [version, rest @ ..] = rest else { return Ok(()) };
        self.is_resource = true;
        (self.api_prefix, self.api_group, self.api_version) =
            (prefix.into(), group.into(), (*version).into());

        let (of_path, rest) = match rest {
            ["watch" | "proxy"] => return Err(Unreadable::Incomplete),
            [verb @ ("watch" | "proxy"), rest @ ..] => (Some(*verb), rest),
            rest => (None, rest),
        };
        of_path.unwrap_or_else(|| verb(method)).clone_into(&mut self.verb);

        // `namespaces/a` is the namespace itself, and so are its subresources.
        let rest = match rest {
            ["namespaces", namespace, inner @ ..] => {
                (*namespace).clone_into(&mut self.namespace);
                if matches!(inner, [] | ["status" | "finalize", ..]) { rest } else { inner }
            }
            _ => rest,
        };
        self.parts = rest.iter().map(|part| (*part).to_owned()).collect();
        let part = |at: usize| rest.get(at).copied().unwrap_or_default().to_owned();
        (self.resource, self.name) = (part(0), part(1));
        if self.verb != "proxy" {
            self.subresource = part(2);
        }

        if self.name.is_empty() && self.verb == "get" {
            let options = ListOptions::of(query);
            if options.watch { "watch" } else { "list" }.clone_into(&mut self.verb);
            self.name = options.name.filter(|name| is_path_segment(name)).unwrap_or_default();
        }
        if self.name.is_empty() && self.verb == "delete" {
            "deletecollection".clone_into(&mut self.verb);
        }
        if of_path.is_none() && matches!(&*self.verb, "list" | "watch" | "deletecollection") {
            let selector = |name| match query.first(name).map(|value| str::from_utf8(value)) {
                Some(Err(_)) => Err(Unreadable::Encoding),
                Some(Ok(value)) => Ok(value.to_owned()),
                None => Ok(String::new()),
            };
            (self.field_selector, self.label_selector) =
                (selector("fieldSelector")?, selector("labelSelector")?);
        }
        Ok(())
    }
}

/// Whether the API server can decode the options of a list, watch or deletecollection. If not, it answers 400.
pub fn has_valid_options(query: &str) -> bool {
    ListOptions::decode(&Query::of(query)).is_some()
}

/// The verb of a method. Methods are case-sensitive.
fn verb(method: &str) -> &'static str {
    match method {
        "POST" => "create",
        "GET" | "HEAD" => "get",
        "PUT" => "update",
        "PATCH" => "patch",
        "DELETE" => "delete",
        _ => "",
    }
}

/// Whether `name` can be a segment of a path (`IsValidPathSegmentName` of apimachinery).
fn is_path_segment(name: &str) -> bool {
    !matches!(name, "." | "..") && !name.contains(['/', '%'])
}

#[cfg(test)]
mod tests;
