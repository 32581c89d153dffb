//! Handles: what a client shows instead of a credential. Worth nothing outside of this machine. Pure.
//!
//! A handle names a uid, the access rule that it was given out under, and its end. A key that only the proxy has signs these
//! and one target, so the proxy keeps no table, and a handle outlives a restart.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use aws_lc_rs::hmac::{self, HMAC_SHA256};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use secrecy::{ExposeSecret as _, SecretString};
use zeroize::Zeroizing;

/// Bytes of a key.
pub(crate) const KEY: usize = 32;

/// How each handle begins: what it is, and its version. Signed too.
const PREFIX: &str = "credbroker-handle-1.";
const SIGNATURE: usize = 32;
/// Bytes of uid and end.
const FIXED: usize = 4 + 8;
/// The longest handle. Names of rules are much shorter.
const LONGEST: usize = 4096;

/// What a handle says. Who has checked it knows that this is true.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Claims {
    /// Who may use it.
    pub(crate) uid: u32,
    /// The access rule that it was given out under; `None`: there was no rule.
    pub(crate) rule: Option<Arc<str>>,
    /// Whole seconds since 1970.
    pub(crate) expires: u64,
}

/// Why a handle is not valid.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub(crate) enum HandleError {
    /// It is over.
    #[error("the handle has expired")]
    Expired,
    /// The proxy has not given it out, or for another target.
    #[error("the token is not a handle of this proxy for this target")]
    Foreign,
}

/// The key that signs handles.
pub(crate) struct HandleKey(hmac::Key);

impl fmt::Debug for HandleKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HandleKey")
    }
}

impl HandleKey {
    /// The key with these bytes.
    pub(crate) fn new(bytes: &[u8; KEY]) -> Self {
        Self(hmac::Key::new(HMAC_SHA256, bytes))
    }

    /// A handle for `target`, the path that it is at.
    pub(crate) fn issue(&self, claims: &Claims, target: &str) -> SecretString {
        let said = claims.written();
        let signature = hmac::sign(&self.0, &signed(&said, target));
        let whole = Zeroizing::new([&said, signature.as_ref()].concat());
        SecretString::from(format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(&*whole)))
    }

    /// What `handle` says, if it is for `target` and valid at `now`. The signature is compared in constant time, before
    /// anything that it covers is used.
    ///
    /// # Errors
    ///
    /// It is not valid.
    pub(crate) fn check(
        &self,
        handle: &SecretString,
        target: &str,
        now: SystemTime,
    ) -> Result<Claims, HandleError> {
        let handle = Some(handle.expose_secret()).filter(|handle| handle.len() <= LONGEST);
        let encoded = handle.and_then(|handle| handle.strip_prefix(PREFIX)).ok_or(HandleError::Foreign)?;
        let whole = URL_SAFE_NO_PAD.decode(encoded).map_err(|_not_encoded| HandleError::Foreign)?;
        let whole = Zeroizing::new(whole);
        let (said, signature) = whole.split_last_chunk::<SIGNATURE>().ok_or(HandleError::Foreign)?;
        hmac::verify(&self.0, &signed(said, target), signature).map_err(|_other| HandleError::Foreign)?;
        let claims = Claims::read(said).ok_or(HandleError::Foreign)?;
        let end = UNIX_EPOCH.checked_add(Duration::from_secs(claims.expires));
        if end.is_some_and(|end| now < end) { Ok(claims) } else { Err(HandleError::Expired) }
    }
}

impl Claims {
    /// Uid, end, and the name of the rule; without a rule, the text ends here, and a name begins with one byte more.
    fn written(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(FIXED + 32);
        bytes.extend(self.uid.to_be_bytes());
        bytes.extend(self.expires.to_be_bytes());
        if let Some(rule) = &self.rule {
            bytes.push(b'=');
            bytes.extend(rule.as_bytes());
        }
        bytes
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let (uid, rest) = bytes.split_first_chunk()?;
        let (expires, rest) = rest.split_first_chunk()?;
        let rule = match rest.split_first() {
            None => None,
            Some((b'=', name)) => Some(str::from_utf8(name).ok()?.into()),
            Some(_) => return None,
        };
        Some(Self { uid: u32::from_be_bytes(*uid), rule, expires: u64::from_be_bytes(*expires) })
    }
}

/// What is signed. The length keeps the end of `said` and the beginning of `target` apart.
fn signed(said: &[u8], target: &str) -> Vec<u8> {
    let length = (said.len() as u64).to_be_bytes();
    [PREFIX.as_bytes(), &length, said, target.as_bytes()].concat()
}

#[cfg(test)]
mod tests;
