//! Reads the files that select accounts.

use std::{
    fs::OpenOptions,
    io::{self, Read as _},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
    sync::Arc,
    time::Duration,
};

use rustix::fs::OFlags;
use tokio::{task::spawn_blocking, time::timeout};
use zeroize::Zeroizing;

use credbroker_observe::clock::Clock;
use credbroker_plugin::IdentityFiles;

/// The largest file that is read. A larger one counts as missing.
const LARGEST: u64 = 1 << 20;
/// How long a request waits for the files. The file system of a hung mount never answers.
const LONGEST: Duration = Duration::from_secs(2);

/// Reads `files`, if `is_needed` when no other task reads them, and returns the version of the account that they select.
/// `None`: not needed, not certain, or the file system has not answered.
pub async fn judge(
    files: &Arc<IdentityFiles>,
    clock: &Arc<dyn Clock>,
    is_needed: fn(&IdentityFiles) -> bool,
) -> Option<u64> {
    let reading = async {
        let turn = Arc::clone(&files.turn).lock_owned().await;
        if !is_needed(files) {
            return None;
        }
        let (files, clock) = (Arc::clone(files), Arc::clone(clock));
        // Not on the tracker: a drain must not wait for a hung mount. It keeps its turn, so no other reading starts.
        let read = spawn_blocking(move || {
            let _turn = turn;
            files.judge(|file| read_selector(file).unwrap_or_default(), || clock.now().boot)
        });
        read.await.ok()?
    };
    timeout(LONGEST, reading).await.ok()?
}

/// The content of a file that selects an account: nothing, unless it is a regular file that is not too large.
pub fn read_selector(path: &Path) -> io::Result<Zeroizing<Vec<u8>>> {
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let found = file.metadata()?;
    let length = Some(found.len()).filter(|length| found.is_file() && *length <= LARGEST).unwrap_or_default();
    // In one allocation, which is wiped.
    let mut content = Zeroizing::new(Vec::with_capacity(usize::try_from(length).unwrap_or_default()));
    file.take(length).read_to_end(&mut content)?;
    Ok(content)
}

#[cfg(test)]
mod tests;
