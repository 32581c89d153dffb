//! The first segments of a path, which name a target.

use std::fmt;

use http::StatusCode;

use super::segment;
use crate::status::Refused;

/// What a path begins with. The broker knows whether there is such a target.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum TargetName {
    /// A ClusterProfile: `/clusters/NAMESPACE/NAME`.
    Cluster {
        /// Its namespace on the hub.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// A context of a kubeconfig: `/contexts/SLUG-DIGEST`.
    Context {
        /// For people.
        slug: String,
        /// Twelve hexadecimal digits over the file and the context.
        digest: String,
    },
}

/// The path of a target, which clients have in front of the paths of the API server.
impl fmt::Display for TargetName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cluster { namespace, name } => write!(f, "/clusters/{namespace}/{name}"),
            Self::Context { slug, digest } => write!(f, "/contexts/{slug}-{digest}"),
        }
    }
}

/// The target, and the path behind it without its first slash.
pub(super) fn split(path: &str) -> Result<(TargetName, &str), Refused> {
    let (kind, rest) = segment::first(path);
    let (kind, rest) = (segment::decode(kind)?, rest.unwrap_or_default());
    let mut rest = rest;
    let mut name = || -> Result<String, Refused> {
        let (raw, after) = segment::first(rest);
        rest = after.unwrap_or_default();
        // Text that no target has is a target that does not exist.
        segment::decode(raw).map(|name| Some(name).filter(|name| is_name(name)))?.ok_or_else(Refused::target)
    };
    let target = match &*kind {
        "clusters" => TargetName::Cluster { namespace: name()?, name: name()? },
        "contexts" => {
            let name = name()?;
            let (slug, digest) = name.rsplit_once('-').ok_or_else(Refused::target)?;
            let is_digit = |byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
            if slug.is_empty() || digest.len() != 12 || !digest.bytes().all(is_digit) {
                return Err(Refused::target());
            }
            TargetName::Context { slug: slug.to_owned(), digest: digest.to_owned() }
        }
        _ => {
            let message = "the path must begin with `/clusters/NAMESPACE/NAME/` or `/contexts/NAME-DIGEST/`";
            return Err(Refused::new(StatusCode::NOT_FOUND, message));
        }
    };
    Ok((target, rest))
}

/// Whether `name` is safe in a path, a log and a header without any encoding.
fn is_name(name: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    (1..=253).contains(&name.len()) && name.bytes().all(is_allowed)
}
