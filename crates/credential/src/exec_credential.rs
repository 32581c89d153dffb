//! The output of a plugin: an `ExecCredential` of client.authentication.k8s.io.

use std::time::{Duration, SystemTime};

use base64::{
    Engine,
    alphabet::URL_SAFE,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use secrecy::{ExposeSecret as _, SecretString};
use serde::de::IgnoredAny;

use crate::{
    document::{self, Aliases, Node, ParseError, ParseErrorKind, Position},
    exec_info::ApiVersion,
    pair::{ClientPair, PairError, client_pair},
    timestamp,
};

/// The material that a plugin returned. A key always comes with its certificate.
#[derive(Debug, Default)]
pub struct Material {
    /// Bearer token.
    pub token: Option<Token>,
    /// Client certificate and key.
    pub pair: Option<ClientPair>,
}

impl Material {
    /// The text of the token.
    pub fn token(&self) -> Option<&str> {
        self.token.as_ref().map(|token| token.secret.expose_secret())
    }

    /// The PEM chain and its key.
    pub fn pem(&self) -> Option<[&[u8]; 2]> {
        self.pair.as_ref().map(|pair| [pair.chain_pem.expose_secret(), pair.key_pem.expose_secret()])
    }
}

/// A bearer token.
#[derive(Debug)]
pub struct Token {
    /// Its text, without control characters.
    pub secret: SecretString,
    /// The `exp` claim if it is a JWT. The signature is not verified, so the claim may only shorten a lifetime.
    pub expires_at: Option<SystemTime>,
}

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

/// Why the output of a plugin is not accepted, and where, if known. Never contains the output, which may be a token.
#[derive(Clone, Debug, thiserror::Error)]
pub enum DecodeError {
    /// `expirationTimestamp` is not a valid time.
    #[error("`status.expirationTimestamp` is not an RFC 3339 time such as 2026-01-02T03:04:05Z{}", .0.suffix())]
    BadTimestamp(Position),
    /// Not one JSON or YAML document.
    #[error("the output is not one JSON or YAML document")]
    Document(#[source] ParseError),
    /// Nothing was printed.
    #[error("the plugin printed nothing")]
    Empty,
    /// A certificate without its key, or a key without its certificate: the field that is missing.
    #[error("the plugin returned only a certificate or a key, not both: `status.{0}` is missing")]
    HalfPair(&'static str),
    /// A status with neither token nor certificate.
    #[error("the plugin returned neither a token nor a certificate with its key")]
    NoCredential,
    /// No `status`.
    #[error("the plugin returned no `status`")]
    NoStatus,
    /// The document is not a map, but this.
    #[error("expected an ExecCredential, found {}{}", .0, .1.suffix())]
    NotAnObject(&'static str, Position),
    /// The certificate or its key.
    #[error(transparent)]
    Pair(#[from] PairError),
    /// White space at either end, such as the newline at the end of a file.
    #[error("the token begins or ends with a space or a newline{}; the plugin must print the bare token", .0.suffix())]
    TokenBlank(Position),
    /// A control character, which an HTTP header cannot contain.
    #[error("the token contains a control character, which an HTTP header cannot contain{}", .0.suffix())]
    TokenControl(Position),
    /// A character outside ASCII.
    #[error("the token contains a character that is not ASCII, which an HTTP header cannot contain{}", .0.suffix())]
    TokenNotAscii(Position),
    /// The output has another version than the provider: the provider's, and the output's if it is a known one.
    #[error(
        "the plugin printed {}, but the provider is configured for {}; set `apiVersion` of the provider to the version that the plugin prints",
        .1.map_or("another version", ApiVersion::as_str),
        .0.as_str()
    )]
    VersionMismatch(ApiVersion, Option<ApiVersion>),
    /// No `apiVersion`.
    #[error("the output has no `apiVersion`; the provider is configured for {}", .0.as_str())]
    VersionMissing(ApiVersion),
    /// Another kind of object.
    #[error("the output's `kind` is not ExecCredential{}", .0.suffix())]
    WrongKind(Position),
    /// A field has the wrong type: the field, what it must be, what it is, and where.
    #[error("`{}`: expected {}, found {}{}", .0, .1, .2, .3.suffix())]
    WrongType(&'static str, &'static str, &'static str, Position),
}

/// Decodes the stdout of a plugin: one JSON or YAML document.
///
/// It is at least as strict as client-go, and also refuses duplicate keys, a second document, and a token that does not
/// fit into a header. Unknown fields and an echoed `spec` are ignored.
pub fn decode(stdout: &[u8], expected: ApiVersion) -> Result<Decoded, DecodeError> {
    let root = document::yaml(stdout, Aliases::Refuse).map_err(|source| match source.kind {
        ParseErrorKind::Empty => DecodeError::Empty,
        _ => DecodeError::Document(located(source, stdout)),
    })?;
    if root.as_mapping().is_none() {
        return Err(DecodeError::NotAnObject(root.value.kind(), root.at));
    }
    check_type(&root, expected)?;
    let status = root.get("status").filter(|status| !status.is_null()).ok_or(DecodeError::NoStatus)?;
    if status.as_mapping().is_none() {
        return Err(wrong_type("status", "a map", status));
    }
    read_status(status)
}

/// The parser of YAML knows only where the collection around a mistake begins; that of JSON knows the mistake.
fn located(error: ParseError, stdout: &[u8]) -> ParseError {
    if !matches!(error.kind, ParseErrorKind::Syntax(_)) || !stdout.trim_ascii_start().starts_with(b"{") {
        return error;
    }
    match serde_json::from_slice::<IgnoredAny>(stdout) {
        Ok(_) => error,
        Err(json) => ParseError { at: Position::new(json.line(), json.column()), ..error },
    }
}

/// `kind` may be missing, as in client-go; `apiVersion` may not.
fn check_type(root: &Node, expected: ApiVersion) -> Result<(), DecodeError> {
    if let Some((kind, node)) = text(root, "kind", "kind")?
        && kind != "ExecCredential"
    {
        return Err(DecodeError::WrongKind(node.at));
    }
    let version = text(root, "apiVersion", "apiVersion")?;
    let (version, _) = version.ok_or(DecodeError::VersionMissing(expected))?;
    if version != expected.as_str() {
        return Err(DecodeError::VersionMismatch(expected, ApiVersion::from_name(version)));
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
        (Some(_), None) => return Err(DecodeError::HalfPair("clientKeyData")),
        (None, Some(_)) => return Err(DecodeError::HalfPair("clientCertificateData")),
    };
    let token = token.map(|(token, node)| bearer(token, node.at)).transpose()?;
    Ok(Decoded { material: Material { token, pair }, expires_at, warnings })
}

/// Checks a credential that no plugin printed, as [`decode`] does: a token, a PEM chain with its key, or both.
pub fn check(token: Option<&str>, pair: Option<[&str; 2]>) -> Result<Decoded, DecodeError> {
    let (pair, warnings) = match pair {
        Some([chain, key]) => {
            let (pair, warnings) = client_pair(chain, key)?;
            (Some(pair), warnings)
        }
        None if token.is_none() => return Err(DecodeError::NoCredential),
        None => (None, Vec::new()),
    };
    let token = token.map(|token| bearer(token, Position::UNKNOWN)).transpose()?;
    Ok(Decoded { material: Material { token, pair }, expires_at: None, warnings })
}

/// Nothing is trimmed: a token with which every request would fail in client-go is refused here.
fn bearer(token: &str, at: Position) -> Result<Token, DecodeError> {
    match () {
        () if token.trim() != token => Err(DecodeError::TokenBlank(at)),
        () if token.contains(char::is_control) => Err(DecodeError::TokenControl(at)),
        () if !token.is_ascii() => Err(DecodeError::TokenNotAscii(at)),
        () => Ok(Token { secret: token.into(), expires_at: token_expiry(token) }),
    }
}

fn expiration(status: &Node) -> Result<Option<SystemTime>, DecodeError> {
    let field = status.get("expirationTimestamp").filter(|node| !node.is_null());
    let Some(node) = field else { return Ok(None) };
    let text = node.as_str().ok_or_else(|| wrong_type("status.expirationTimestamp", "a string", node))?;
    let time = timestamp::parse(text).ok_or(DecodeError::BadTimestamp(node.at))?;
    Ok(Some(time).filter(|time| !timestamp::is_zero(*time)))
}

/// The text of a field; `None` if it is null or empty.
fn text<'a>(
    map: &'a Node,
    key: &str,
    field: &'static str,
) -> Result<Option<(&'a str, &'a Node)>, DecodeError> {
    let Some(node) = map.get(key).filter(|node| !node.is_null()) else { return Ok(None) };
    let text = node.as_str().ok_or_else(|| wrong_type(field, "a string", node))?;
    Ok(Some((text, node)).filter(|_| !text.is_empty()))
}

fn wrong_type(field: &'static str, expected: &'static str, node: &Node) -> DecodeError {
    DecodeError::WrongType(field, expected, node.value.kind(), node.at)
}

const BASE64URL: GeneralPurpose = GeneralPurpose::new(
    &URL_SAFE,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The `exp` claim of a JWT: three base64url parts, of which the second is a JSON object. The signature is not verified,
/// so the claim may only shorten a lifetime. `None`: the token is not such a JWT.
fn token_expiry(token: &str) -> Option<SystemTime> {
    let parts = token.split('.').map(|part| BASE64URL.decode(part).ok()).collect::<Option<Vec<_>>>()?;
    let [_, payload, _] = parts.as_slice() else { return None };
    let claims: serde_json::Value = serde_json::from_slice(payload).ok()?;
    let seconds = claims.get("exp")?.as_f64()?;
    let distance = Duration::try_from_secs_f64(seconds.abs()).ok()?;
    timestamp::shift(SystemTime::UNIX_EPOCH, seconds < 0.0, distance)
}

#[cfg(test)]
mod tests;
