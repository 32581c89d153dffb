//! A connection that ended early.

use std::{error::Error, fmt};

/// The connection ended before the answer was there. Without a source on purpose: tonic searches the chain for errors
/// that it knows, and would turn hyper's into a status that looks like one from the broker.
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
