//! Credentials that a kubeconfig has without a plugin: reading them takes the place of a run.

use std::{
    fs::OpenOptions,
    io::{self, Read as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use credbroker_client::safety::unsafe_file;
use rustix::fs::OFlags;
use tokio::{task::spawn_blocking, time::timeout};
use zeroize::Zeroizing;

use crate::{
    error::{RunError, RunErrorKind},
    runner::RunOutput,
};
use credbroker_credential::{DecodeError, Decoded, LifetimeError, check};
use credbroker_plugin::{PluginSpec, StoredCredential, StoredValue};

/// How long the files may take to be read.
const READ: Duration = Duration::from_secs(5);
/// Maximum size of a file, in bytes.
const MAX: u64 = 1 << 20;
/// What other users could do with a file that they can change.
const SO: &str = "decide which credential the broker serves";

/// Why a credential of a kubeconfig cannot be served. Never contains a value.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoredError {
    /// The file has nothing but white space.
    #[error("`{}` is empty", .0.display())]
    Empty(PathBuf),
    /// The credential is not valid.
    #[error(transparent)]
    Invalid(#[from] DecodeError),
    /// The credential has expired, or is not valid yet.
    #[error("{}", lifetime(*.0))]
    Lifetime(LifetimeError),
    /// The file cannot be read, is too large, or is not a text.
    #[error("`{}` cannot be read: {}", .0.display(), .1)]
    Unreadable(PathBuf, Arc<io::Error>),
    /// The file systems did not respond in time.
    #[error("the files of the credential were not read in time; check for a network mount that hangs")]
    Unanswered,
    /// Other users decide what is in the file. With the problem and its remedy.
    #[error("`{}`: {}", .0.display(), .1)]
    Untrusted(PathBuf, String),
}

fn lifetime(error: LifetimeError) -> String {
    match error {
        LifetimeError::Certificate(ago) => format!("the client certificate expired {ago:?} ago; renew it"),
        LifetimeError::Credential(ago) => format!("the token expired {ago:?} ago; renew it"),
        LifetimeError::NotYetValid(ahead) => {
            format!(
                "the client certificate is not valid before {ahead:?} from now; check this machine's clock"
            )
        }
    }
}

/// Reads and checks the credential of `spec`, whose user runs no plugin.
pub(crate) async fn read(spec: &PluginSpec, stored: StoredCredential) -> Result<RunOutput, RunError> {
    let reading = timeout(READ, spawn_blocking(move || decoded(&stored)));
    let decoded = match reading.await {
        Ok(Ok(decoded)) => decoded,
        // A panic in the thread. There is no value in it: what may panic has read no value yet, or has checked it.
        Ok(Err(_panic)) => return Err(RunError::of(spec, RunErrorKind::Panicked)),
        Err(_elapsed) => Err(StoredError::Unanswered),
    };
    let decoded = decoded.map_err(|error| RunError::of(spec, RunErrorKind::Stored(error.into())))?;
    Ok(RunOutput { decoded, file_version: spec.file.version() })
}

fn decoded(stored: &StoredCredential) -> Result<Decoded, StoredError> {
    let token = stored.token.as_ref().map(|value| text(value, true)).transpose()?;
    let pair = stored
        .pair
        .as_ref()
        .map(|[chain, key]| Ok::<_, StoredError>((text(chain, false)?, text(key, false)?)));
    let pair = pair.transpose()?;
    let pair = pair.as_ref().map(|(chain, key)| [chain.as_str(), key.as_str()]);
    Ok(check(token.as_ref().map(|token| token.as_str()), pair)?)
}

/// Of the file of a token, client-go ignores white space at both ends.
fn text(value: &StoredValue, is_token: bool) -> Result<Zeroizing<String>, StoredError> {
    let path = match value {
        StoredValue::Inline(text) => return Ok(Zeroizing::new(text.to_string())),
        StoredValue::File(path) => path,
    };
    let unreadable = |error: io::Error| StoredError::Unreadable(path.clone(), Arc::new(error));
    let contents = contents(path).map_err(unreadable)?;
    let contents = match contents {
        Ok(contents) => contents,
        Err(problem) => return Err(StoredError::Untrusted(path.clone(), problem)),
    };
    let text = if is_token { contents.trim() } else { &contents };
    if text.trim().is_empty() {
        return Err(StoredError::Empty(path.clone()));
    }
    Ok(Zeroizing::new(text.to_owned()))
}

/// The text in a file, or why other users decide what it is. The file that was opened is the one that is checked.
fn contents(path: &Path) -> io::Result<Result<Zeroizing<String>, String>> {
    let unusable = |problem: &str| io::Error::new(io::ErrorKind::InvalidData, problem.to_owned());
    // A pipe could keep the thread without end.
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(unusable("it is not a regular file"));
    }
    if found.len() > MAX {
        return Err(unusable("it has more than 1 MiB"));
    }
    if let Some(by) = unsafe_file(path, &found)?.first() {
        return Ok(Err(by.problem(SO)));
    }
    // One block, which is not copied while it grows.
    let size = usize::try_from(found.len()).unwrap_or_default();
    let mut text = Zeroizing::new(String::with_capacity(size + 1));
    file.take(MAX).read_to_string(&mut text)?;
    Ok(Ok(text))
}

#[cfg(test)]
mod tests;
