//! The output of a plugin.

use std::time::SystemTime;

use super::{ApiVersion, DecodeError};
use crate::{
    Material, Token,
    document::{self, Aliases, Node, ParseErrorKind},
    jwt,
    pair::client_pair,
    timestamp,
};

/// A checked document.
#[derive(Debug)]
pub struct Decoded {
    /// The material of the credential.
    pub material: Material,
    /// `status.expirationTimestamp`; `None`: absent, null or the zero time.
    pub expires_at: Option<SystemTime>,
    /// What is unusual but accepted. Never contains the output.
    pub warnings: Vec<&'static str>,
}

/// Decodes the stdout of a plugin: one JSON or YAML document.
///
/// It is at least as strict as client-go, and also refuses duplicate keys, a second document, and a token that does not
/// fit into a header. Unknown fields and an echoed `spec` are ignored.
pub fn decode(stdout: &[u8], expected: ApiVersion) -> Result<Decoded, DecodeError> {
    let root = document::parse(stdout, Aliases::Refuse).map_err(|source| match source.kind {
        ParseErrorKind::Empty => DecodeError::Empty,
        _ => DecodeError::Document { source },
    })?;
    if root.as_mapping().is_none() {
        return Err(DecodeError::NotAnObject { found: root.kind(), at: root.at });
    }
    check_type(&root, expected)?;
    let status = root.get("status").filter(|status| !status.is_null()).ok_or(DecodeError::NoStatus)?;
    if status.as_mapping().is_none() {
        return Err(wrong_type("status", "a map", status));
    }
    read_status(status)
}

/// `kind` may be missing, as in client-go; `apiVersion` may not.
fn check_type(root: &Node, expected: ApiVersion) -> Result<(), DecodeError> {
    match text(root, "kind", "kind")? {
        Some((kind, at)) if kind != "ExecCredential" => return Err(DecodeError::WrongKind { at: at.at }),
        _ => {}
    }
    let (version, _) =
        text(root, "apiVersion", "apiVersion")?.ok_or(DecodeError::VersionMissing { expected })?;
    if version != expected.as_str() {
        return Err(DecodeError::VersionMismatch { expected, found: ApiVersion::from_name(version) });
    }
    Ok(())
}

fn read_status(status: &Node) -> Result<Decoded, DecodeError> {
    let token = text(status, "token", "status.token")?;
    let chain = text(status, "clientCertificateData", "status.clientCertificateData")?;
    let key = text(status, "clientKeyData", "status.clientKeyData")?;
    let expires_at = expiration(status)?;

    let (pair, warnings) = match (chain, key) {
        (Some((chain, _)), Some((key, _))) => {
            let (pair, warnings) = client_pair(chain, key)?;
            (Some(pair), warnings)
        }
        (None, None) if token.is_none() => return Err(DecodeError::NoCredential),
        (None, None) => (None, Vec::new()),
        (Some(_), None) => return Err(DecodeError::HalfPair { missing: "clientKeyData" }),
        (None, Some(_)) => return Err(DecodeError::HalfPair { missing: "clientCertificateData" }),
    };
    let token = token.map(|(token, node)| bearer(token, node)).transpose()?;
    Ok(Decoded { material: Material { token, pair }, expires_at, warnings })
}

/// Nothing is trimmed: a token with which every request would fail in client-go is refused here.
fn bearer(token: &str, node: &Node) -> Result<Token, DecodeError> {
    let at = node.at;
    if token.trim() != token {
        return Err(DecodeError::TokenBlank { at });
    }
    if token.contains(char::is_control) {
        return Err(DecodeError::TokenControl { at });
    }
    if !token.is_ascii() {
        return Err(DecodeError::TokenNotAscii { at });
    }
    Ok(Token { secret: token.into(), expires_at: jwt::expiry(token) })
}

fn expiration(status: &Node) -> Result<Option<SystemTime>, DecodeError> {
    let field = status.get("expirationTimestamp").filter(|node| !node.is_null());
    let Some(node) = field else { return Ok(None) };
    let text = node.as_str().ok_or_else(|| wrong_type("status.expirationTimestamp", "a string", node))?;
    let time = timestamp::parse(text).ok_or(DecodeError::BadTimestamp { at: node.at })?;
    Ok(Some(time).filter(|time| !timestamp::is_zero(*time)))
}

/// The text of a field; `None` if it is null or empty.
fn text<'a>(
    map: &'a Node,
    key: &str,
    field: &'static str,
) -> Result<Option<(&'a str, &'a Node)>, DecodeError> {
    match map.get(key).filter(|node| !node.is_null()) {
        None => Ok(None),
        Some(node) => {
            let text = node.as_str().ok_or_else(|| wrong_type(field, "a string", node))?;
            Ok(Some((text, node)).filter(|_| !text.is_empty()))
        }
    }
}

fn wrong_type(field: &'static str, expected: &'static str, node: &Node) -> DecodeError {
    DecodeError::WrongType { field, expected, found: node.kind(), at: node.at }
}

#[cfg(test)]
mod tests;
