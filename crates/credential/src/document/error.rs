//! Why a document is not accepted, and where.

use super::position::Position;

/// Why a document is not accepted. It never contains text of the document, which may be a secret.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{kind}{}", at.suffix())]
pub struct ParseError {
    /// What is wrong.
    pub kind: ParseErrorKind,
    /// Where.
    pub at: Position,
}

/// What is wrong with a document.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ParseErrorKind {
    /// `*name` where aliases are not followed, or without a finished anchor.
    #[error("an alias is not accepted here")]
    Alias,
    /// The same key twice in one map.
    #[error("a key appears twice in one map")]
    DuplicateKey,
    /// Nothing but blanks and comments.
    #[error("the document is empty")]
    Empty,
    /// A key that is a list, a map or null.
    #[error("a key must be a string")]
    Key,
    /// `<<` where merges are not followed, or with a value that is not a map.
    #[error("a merge key (`<<`) is not accepted here")]
    MergeKey,
    /// Bytes that are not UTF-8.
    #[error("the document is not UTF-8")]
    NotUtf8,
    /// A second document after the first.
    #[error("expected one document, found a second one")]
    SecondDocument,
    /// A syntax error.
    #[error("the document is not well-formed")]
    Syntax,
    /// `!tag`.
    #[error("a YAML tag is not accepted here")]
    Tag,
    /// Something after the end of the document.
    #[error("expected the end of the document, found more text")]
    TextAfter,
    /// Aliases that make the document too large.
    #[error(
        "anchors and aliases add more than {} keys and values, or more than {} MiB of text; write fewer of them",
        super::yaml::MAX_ADDED,
        super::yaml::MAX_ADDED_BYTES >> 20
    )]
    TooBig,
    /// More keys and values than this.
    #[error("the document has more than {0} keys and values")]
    TooMany(usize),
    /// Collections that are nested too deeply.
    #[error("lists and maps are nested more than {max} deep", max = super::MAX_DEPTH)]
    TooDeep,
}

impl ParseErrorKind {
    pub(super) const fn at(self, at: Position) -> ParseError {
        ParseError { kind: self, at }
    }
}
