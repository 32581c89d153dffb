//! A connection that ended early.

use std::{error::Error, fmt};

/// The connection ended before the response arrived. It has no source, because tonic searches the chain of sources for
/// errors of hyper and would turn one into a status that looks as if it came from the broker.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionLost(String);

impl ConnectionLost {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

impl fmt::Display for ConnectionLost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the connection was lost ({})", self.0)
    }
}

impl Error for ConnectionLost {}
