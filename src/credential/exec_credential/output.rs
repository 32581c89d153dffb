//! What a plugin printed.

use std::time::SystemTime;

use super::ApiVersion;
use crate::credential::Material;

/// One document, checked.
#[derive(Debug)]
pub struct Decoded {
    /// What authenticates.
    pub material: Material,
    /// `status.expirationTimestamp`; `None`: absent, null or the zero time.
    pub expires_at: Option<SystemTime>,
    /// What is unusual but accepted; each a sentence without any of the output.
    pub warnings: Vec<&'static str>,
}

/// Why an output is not accepted. Never holds any of the output: it may be a token.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// Nothing was printed.
    #[error("the plugin printed nothing")]
    Empty,
}

/// Reads what a plugin printed on stdout: one JSON or YAML document.
pub fn decode(stdout: &[u8], expected: ApiVersion) -> Result<Decoded, DecodeError> {
    let _ = (stdout, expected);
    Err(DecodeError::Empty)
}
