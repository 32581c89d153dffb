//! Reading files that decide what runs.

use std::{
    fs::{File, FileType, Metadata, OpenOptions},
    io::{self, Read as _},
    os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use credbroker_client::safety::unsafe_file;
use rustix::fs::OFlags;

use super::problem::{Location, Report};
use credbroker_credential::document::{Aliases, Node, ParseError, ParseErrorKind, Value, yaml};
use credbroker_plugin::Environment;

/// Maximum size of our own configuration and of a bundle of certificate authorities, in bytes: a system's has a quarter of it.
const MAX: u64 = 1 << 20;

/// Maximum size of a kubeconfig, in bytes: some have a thousand clusters.
const MAX_KUBECONFIG: u64 = 16 << 20;

/// What other users could do with a file that they can change.
const SO: &str = "run programs as the broker";

pub(super) fn config(path: &Path, report: &Report) -> Option<Vec<u8>> {
    report.follow(path);
    read(path, MAX, report)
}

/// Reads a kubeconfig; a missing one is `None` without a problem.
pub(super) fn kubeconfig(path: &Path, report: &Report) -> Option<Vec<u8>> {
    report.follow(path);
    if matches!(path.try_exists(), Ok(false)) {
        return None;
    }
    read(path, MAX_KUBECONFIG, report)
}

/// A user who can write such a file can run programs as the broker, so it must belong to the broker's user or to root, and
/// no other user may be able to write it. The same holds for every directory on the way to it.
fn read(path: &Path, limit: u64, report: &Report) -> Option<Vec<u8>> {
    let problem = |message: String| report.problem(Location::whole(path), message);
    let (file, found) = match open(path) {
        Ok((file, found)) if found.is_file() => (file, found),
        Ok((_, found)) => {
            problem(format!("is {}; it must be a regular file", name(found.file_type())));
            return None;
        }
        Err(error) => {
            problem(format!("cannot be read: {error}"));
            return None;
        }
    };
    match unsafe_file(path, &found) {
        Ok(found) => found.iter().map(|by| by.problem(SO)).for_each(problem),
        Err(error) => problem(format!("its owner and mode cannot be checked: {error}")),
    }
    let bytes = contents(file, &found, limit);
    report.read(path, bytes.as_ref().ok().and_then(|bytes| bytes.as_deref()));
    match bytes {
        Ok(Some(bytes)) => return Some(bytes),
        Ok(None) => problem(format!("has more than {limit} bytes")),
        Err(error) => problem(format!("cannot be read: {error}")),
    }
    None
}

/// Why the file at `path` must not decide whom the broker trusts; `None`: only the broker's user and root can change it.
pub fn distrust(path: &Path) -> io::Result<Option<String>> {
    let found = unsafe_file(path, &path.metadata()?)?;
    Ok(found.first().map(|by| by.problem("decide whom the broker trusts")))
}

/// Reads a file of certificate authorities. A pipe or a device could keep the broker from starting.
pub fn authorities(path: &Path) -> io::Result<Vec<u8>> {
    let unusable = |problem: String| io::Error::new(io::ErrorKind::InvalidData, problem);
    let (file, found) = open(path)?;
    if !found.is_file() {
        return Err(unusable("it is not a regular file".to_owned()));
    }
    let bytes = contents(file, &found, MAX)?;
    bytes.ok_or_else(|| unusable(format!("it has more than {MAX} bytes")))
}

pub(super) fn tree(path: &Path, bytes: &[u8], report: &Report) -> Option<Node> {
    match yaml(bytes, Aliases::Follow) {
        Ok(node) => Some(node),
        Err(ParseError { kind: ParseErrorKind::Empty, at }) => {
            Some(Node { at, ..Value::Mapping(Vec::new()).into() })
        }
        Err(error) => {
            report.problem(Location { file: path, at: error.at }, error.kind.to_string());
            None
        }
    }
}

/// `path` with a leading `~` replaced by the home directory.
pub(super) fn expand(path: &str, env: &Environment) -> PathBuf {
    match (path.strip_prefix('~'), env.set("HOME")) {
        (Some(rest), Some(home)) if rest.is_empty() || rest.starts_with('/') => {
            Path::new(home).join(rest.trim_start_matches('/'))
        }
        _ => PathBuf::from(path),
    }
}

/// Makes `path` absolute: below `dir` if it is relative. `.` is dropped; `..` stays, for it may follow a link.
pub(super) fn below(dir: &Path, path: &str) -> PathBuf {
    dir.join(path).components().collect()
}

/// Opens a file without waiting: a pipe could keep the broker from starting.
fn open(path: &Path) -> io::Result<(File, Metadata)> {
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits();
    let file = OpenOptions::new().read(true).custom_flags(flags.cast_signed()).open(path)?;
    let found = file.metadata()?;
    Ok((file, found))
}

fn name(kind: FileType) -> &'static str {
    match kind {
        _ if kind.is_fifo() => "a pipe",
        _ if kind.is_dir() => "a directory",
        _ => "a device",
    }
}

/// The contents of a file; `None`: they are more than `limit`. A file that is too large is not read. Any other one is read
/// into one block of its size, which is not copied and wiped while it grows.
fn contents(file: File, found: &Metadata, limit: u64) -> io::Result<Option<Vec<u8>>> {
    if found.len() > limit {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    bytes.reserve_exact(usize::try_from(found.len()).unwrap_or_default());
    file.take(limit + 1).read_to_end(&mut bytes)?;
    Ok(Some(bytes).filter(|bytes| bytes.len() as u64 <= limit))
}

#[cfg(test)]
mod tests;
