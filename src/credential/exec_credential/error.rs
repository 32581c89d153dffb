//! Why an output is not accepted.

use super::ApiVersion;
use crate::{
    credential::PairError,
    document::{ParseError, Position},
};

/// Why an output is not accepted. Never holds any of the output: it may be a token.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// `expirationTimestamp` is against the grammar.
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
    /// A certificate without its key, or the other way round.
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
    /// The document is something else than a map.
    #[error("the output is {found}, not an ExecCredential{}", at.suffix())]
    NotAnObject {
        /// What it is.
        found: &'static str,
        /// Where it is, if known.
        at: Position,
    },
    /// The certificate or its key.
    #[error(transparent)]
    Pair(#[from] PairError),
    /// A blank at either end, such as the newline that ends a file.
    #[error("the token begins or ends with a blank or a newline; the plugin must print the bare token{}", at.suffix())]
    TokenBlank {
        /// Where the token is, if known.
        at: Position,
    },
    /// A control character, which no HTTP header can carry.
    #[error("the token has a control character, so no HTTP header can carry it{}", at.suffix())]
    TokenControl {
        /// Where the token is, if known.
        at: Position,
    },
    /// A character beyond ASCII.
    #[error("the token has a character that is not ASCII, so no HTTP header can carry it{}", at.suffix())]
    TokenNotAscii {
        /// Where the token is, if known.
        at: Position,
    },
    /// Another version than the provider's.
    #[error(
        "the plugin speaks {}, the provider is configured for {}; make `apiVersion` of the provider the plugin's",
        found.map_or("another version", ApiVersion::as_str),
        expected.as_str()
    )]
    VersionMismatch {
        /// The provider's.
        expected: ApiVersion,
        /// The plugin's, when it is one that exists.
        found: Option<ApiVersion>,
    },
    /// No `apiVersion`.
    #[error("the output has no `apiVersion`; the provider is configured for {}", expected.as_str())]
    VersionMissing {
        /// The provider's.
        expected: ApiVersion,
    },
    /// Some other kind of object.
    #[error("the output's `kind` is not ExecCredential{}", at.suffix())]
    WrongKind {
        /// Where it is, if known.
        at: Position,
    },
    /// A field of another type than it must have.
    #[error("`{field}` must be of type {expected}, not {found}{}", at.suffix())]
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
