//! Why the output of a plugin is not accepted.

use super::ApiVersion;
use crate::{
    PairError,
    document::{ParseError, Position},
};

/// Why the output of a plugin is not accepted. Never contains the output, which may be a token.
#[derive(Clone, Debug, thiserror::Error)]
pub enum DecodeError {
    /// `expirationTimestamp` is not a valid time.
    #[error("`status.expirationTimestamp` is not an RFC 3339 time such as 2026-01-02T03:04:05Z{}", at.suffix())]
    BadTimestamp {
        /// Where it is, if known.
        at: Position,
    },
    /// Not one JSON or YAML document.
    #[error("the output is not one JSON or YAML document")]
    Document {
        /// What is wrong with it.
        source: ParseError,
    },
    /// Nothing was printed.
    #[error("the plugin printed nothing")]
    Empty,
    /// A certificate without its key, or a key without its certificate.
    #[error("the plugin returned only a certificate or a key, not both: `status.{missing}` is missing")]
    HalfPair {
        /// The field that is missing.
        missing: &'static str,
    },
    /// A status with neither token nor certificate.
    #[error("the plugin returned neither a token nor a certificate with its key")]
    NoCredential,
    /// No `status`.
    #[error("the plugin returned no `status`")]
    NoStatus,
    /// The document is not a map.
    #[error("expected an ExecCredential, found {found}{}", at.suffix())]
    NotAnObject {
        /// What it is.
        found: &'static str,
        /// Where it is, if known.
        at: Position,
    },
    /// The certificate or its key.
    #[error(transparent)]
    Pair(#[from] PairError),
    /// White space at either end, such as the newline at the end of a file.
    #[error("the token begins or ends with a space or a newline{}; the plugin must print the bare token", at.suffix())]
    TokenBlank {
        /// Where the token is, if known.
        at: Position,
    },
    /// A control character, which an HTTP header cannot contain.
    #[error("the token contains a control character, which an HTTP header cannot contain{}", at.suffix())]
    TokenControl {
        /// Where the token is, if known.
        at: Position,
    },
    /// A character outside ASCII.
    #[error("the token contains a character that is not ASCII, which an HTTP header cannot contain{}", at.suffix())]
    TokenNotAscii {
        /// Where the token is, if known.
        at: Position,
    },
    /// The output has another version than the provider.
    #[error(
        "the plugin printed {}, but the provider is configured for {}; set `apiVersion` of the provider to the version that the plugin prints",
        found.map_or("another version", ApiVersion::as_str),
        expected.as_str()
    )]
    VersionMismatch {
        /// The version of the provider.
        expected: ApiVersion,
        /// The version of the output, if it is a known one.
        found: Option<ApiVersion>,
    },
    /// No `apiVersion`.
    #[error("the output has no `apiVersion`; the provider is configured for {}", expected.as_str())]
    VersionMissing {
        /// The version of the provider.
        expected: ApiVersion,
    },
    /// Another kind of object.
    #[error("the output's `kind` is not ExecCredential{}", at.suffix())]
    WrongKind {
        /// Where it is, if known.
        at: Position,
    },
    /// A field has the wrong type.
    #[error("`{field}`: expected {expected}, found {found}{}", at.suffix())]
    WrongType {
        /// The field.
        field: &'static str,
        /// What it must be.
        expected: &'static str,
        /// What it is.
        found: &'static str,
        /// Where it is, if known.
        at: Position,
    },
}
