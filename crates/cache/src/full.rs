//! The limits on the number and the size of keys.

/// The limit that leaves no room for another key.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Room {
    /// `limits.entries`.
    #[error(
        "the broker holds {limit} credentials, which is the limit (`limits.entries`), and all are in use; raise it"
    )]
    Entries {
        /// `limits.entries`.
        limit: usize,
    },
    /// `limits.entriesPerProcess`.
    #[error(
        "this process waits for or watches {limit} credentials that its variables select, which is the limit (`limits.entriesPerProcess`); end some watches"
    )]
    OfProcess {
        /// `limits.entriesPerProcess`.
        limit: usize,
    },
    /// `limits.entriesPerUid`.
    #[error(
        "the processes of this uid wait for or watch {limit} credentials that their variables select, which is the limit (`limits.entriesPerUid`); end some watches"
    )]
    OfUid {
        /// `limits.entriesPerUid`.
        limit: usize,
    },
    /// `limits.bytesPerProcess`.
    #[error(
        "the variables and clusters of this process exceed {limit} bytes (`limits.bytesPerProcess`); send less, or end some watches"
    )]
    BytesOfProcess {
        /// `limits.bytesPerProcess`.
        limit: usize,
    },
    /// `limits.bytesPerUid`.
    #[error(
        "the variables and clusters of the processes of this uid exceed {limit} bytes (`limits.bytesPerUid`); send less, or end some watches"
    )]
    BytesOfUid {
        /// `limits.bytesPerUid`.
        limit: usize,
    },
}

impl Room {
    /// The key of the configuration.
    pub fn key(&self) -> &'static str {
        match self {
            Self::Entries { .. } => "limits.entries",
            Self::OfProcess { .. } => "limits.entriesPerProcess",
            Self::OfUid { .. } => "limits.entriesPerUid",
            Self::BytesOfProcess { .. } => "limits.bytesPerProcess",
            Self::BytesOfUid { .. } => "limits.bytesPerUid",
        }
    }
}
