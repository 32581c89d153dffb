//! Reading files that decide what runs.

use std::{
    fs::{File, FileType, OpenOptions},
    io::{self, Read as _},
    os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use credbroker_client::safety::unsafe_file;
use rustix::fs::OFlags;

use super::problem::{Location, Report};
use credbroker_credential::document::{Aliases, Node, ParseError, ParseErrorKind, Value, json, yaml};
use credbroker_plugin::Environment;

/// Maximum size of our own configuration, in bytes.
const MAX_CONFIG: u64 = 1 << 20;

/// Maximum size of a kubeconfig, in bytes: some have a thousand clusters.
const MAX_KUBECONFIG: u64 = 16 << 20;

/// Maximum size of a bundle of certificate authorities, in bytes: that of a whole system has a quarter of it.
const MAX_AUTHORITIES: u64 = 1 << 20;

/// What other users could do with a file that they can change.
const SO: &str = "run programs as the broker";

/// Reads our own configuration.
pub(super) fn config(path: &Path, report: &Report) -> Option<Vec<u8>> {
    report.follow(path);
    read(path, MAX_CONFIG, report)
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
    let mut file = opened(path, report)?;
    match file.metadata().and_then(|found| unsafe_file(path, &found)) {
        Ok(found) => found.iter().for_each(|by| report.problem(Location::whole(path), by.problem(SO))),
        Err(error) => {
            report.problem(Location::whole(path), format!("its owner and mode cannot be checked: {error}"));
        }
    }
    let bytes = bytes(&mut file, path, limit, report);
    report.read(path, bytes.as_deref());
    bytes
}

/// Why the file at `path` must not decide whom the broker trusts; `None`: only the broker's user and root can change it.
///
/// # Errors
///
/// It cannot be looked at.
pub fn distrust(path: &Path) -> io::Result<Option<String>> {
    let found = unsafe_file(path, &path.metadata()?)?;
    Ok(found.first().map(|by| by.problem("decide whom the broker trusts")))
}

/// Reads a file of certificate authorities. A pipe or a device could keep the broker from starting.
///
/// # Errors
///
/// It cannot be read, is not a regular file, or is larger than 1 MiB.
pub fn authorities(path: &Path) -> io::Result<Vec<u8>> {
    let unusable = |problem: String| Err(io::Error::new(io::ErrorKind::InvalidData, problem));
    if !std::fs::metadata(path)?.is_file() {
        return unusable("it is not a regular file".to_owned());
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_AUTHORITIES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_AUTHORITIES {
        return unusable(format!("it has more than {MAX_AUTHORITIES} bytes"));
    }
    Ok(bytes)
}

/// The document in `bytes`: YAML, of which nearly all JSON is a part, or else JSON.
pub(super) fn tree(path: &Path, bytes: &[u8], report: &Report) -> Option<Node> {
    match yaml(bytes, Aliases::Follow).or_else(|error| json(bytes).or(Err(error))) {
        Ok(node) => Some(node),
        Err(ParseError { kind: ParseErrorKind::Empty, at }) => {
            Some(Node { at, value: Value::Mapping(Vec::new()) })
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

/// Opens a regular file. Others are refused before they are read: a pipe could keep the broker waiting without end.
fn opened(path: &Path, report: &Report) -> Option<File> {
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits();
    let opened = OpenOptions::new().read(true).custom_flags(flags.cast_signed()).open(path);
    let problem = match opened.and_then(|file| Ok((file.metadata()?.file_type(), file))) {
        Ok((kind, file)) if kind.is_file() => return Some(file),
        Ok((kind, _)) => format!("is {}; it must be a regular file", name(kind)),
        Err(error) => format!("cannot be read: {error}"),
    };
    report.problem(Location::whole(path), problem);
    None
}

fn name(kind: FileType) -> &'static str {
    match kind {
        _ if kind.is_fifo() => "a pipe",
        _ if kind.is_dir() => "a directory",
        _ => "a device",
    }
}

fn bytes(file: &mut File, path: &Path, limit: u64, report: &Report) -> Option<Vec<u8>> {
    // A file that is too large is not read. Any other one is read into one block of its size, which is not copied and wiped
    // while it grows.
    let read = file.metadata().and_then(|found| {
        let mut bytes = Vec::new();
        if found.len() <= limit {
            bytes.reserve_exact(usize::try_from(found.len()).unwrap_or_default());
            file.take(limit + 1).read_to_end(&mut bytes)?;
        }
        let is_whole = found.len() <= limit && bytes.len() as u64 <= limit;
        Ok(is_whole.then_some(bytes))
    });
    match read {
        Ok(Some(bytes)) => return Some(bytes),
        Ok(None) => report.problem(Location::whole(path), format!("has more than {limit} bytes")),
        Err(error) => report.problem(Location::whole(path), format!("cannot be read: {error}")),
    }
    None
}

#[cfg(test)]
mod tests;
