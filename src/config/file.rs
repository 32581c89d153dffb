//! Reading files that decide what runs.

use std::{
    fs::{File, FileType, OpenOptions},
    io::{self, Read as _},
    os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use credbroker_client::paths::exposed;
use rustix::fs::OFlags;

use super::{
    problem::{Location, Report},
    reader::whole,
};
use crate::{
    document::{Aliases, Node, ParseError, ParseErrorKind, json, yaml},
    plugin::Environment,
};

/// Maximum size of our own configuration, in bytes.
const MAX_CONFIG: u64 = 1 << 20;

/// Maximum size of a kubeconfig, in bytes: some have a thousand clusters.
const MAX_KUBECONFIG: u64 = 16 << 20;

/// Maximum size of a bundle of certificate authorities, in bytes: that of a whole system has a quarter of it.
const MAX_AUTHORITIES: u64 = 1 << 20;

/// Reads our own configuration. A user who can write it can run programs as the broker, so it must belong to the broker's
/// user or to root, and only its owner may be able to write it. The same holds for every directory on the way to it.
pub(super) fn config(path: &Path, report: &mut Report) -> Option<Vec<u8>> {
    report.sources.follow(path);
    let mut file = opened(path, report)?;
    match file.metadata() {
        Ok(metadata) => {
            let (owner, us) = (metadata.uid(), rustix::process::geteuid().as_raw());
            if owner != us && owner != 0 {
                report.problem(
                    whole(path),
                    format!("belongs to uid {owner}; it must belong to the broker's own uid {us} or to root"),
                );
            }
            if metadata.mode() & 0o022 != 0 {
                report.problem(
                    whole(path),
                    format!("users other than its owner can write it, and so run programs as the broker; run `chmod go-w {}`", path.display()),
                );
            }
        }
        Err(error) => report.problem(whole(path), format!("cannot be read: {error}")),
    }
    refuse_exposed(path, report);
    report.read(&[path.to_owned()]);
    let bytes = bytes(&mut file, path, MAX_CONFIG, report);
    report.sources.read(path, bytes.as_deref());
    bytes
}

/// Reads a kubeconfig; a missing one is `None` without a problem. kubectl trusts every kubeconfig, but one that all users
/// can write is refused here.
pub(super) fn kubeconfig(path: &Path, report: &mut Report) -> Option<Vec<u8>> {
    report.sources.follow(path);
    if matches!(path.try_exists(), Ok(false)) {
        return None;
    }
    let mut file = opened(path, report)?;
    if file.metadata().is_ok_and(|metadata| metadata.mode() & 0o002 != 0) {
        report.problem(
            whole(path),
            format!(
                "all users can write it, and so run programs as the broker; run `chmod o-w {}`",
                path.display()
            ),
        );
    }
    report.read(&[path.to_owned()]);
    let bytes = bytes(&mut file, path, MAX_KUBECONFIG, report);
    report.sources.read(path, bytes.as_deref());
    bytes
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
pub(super) fn tree(path: &Path, bytes: &[u8], report: &mut Report) -> Option<Node> {
    match yaml(bytes, Aliases::Follow).or_else(|error| json(bytes).or(Err(error))) {
        Ok(node) => Some(node),
        Err(ParseError { kind: ParseErrorKind::Empty, at }) => {
            Some(Node { at, value: crate::document::Value::Mapping(Vec::new()) })
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

/// Refuses a file that other users can replace. A mount that is read-only here, as those of Kubernetes are, is safe.
fn refuse_exposed(path: &Path, report: &mut Report) {
    let us = rustix::process::geteuid().as_raw();
    // The owner and the mode of the file itself are reported already.
    match exposed(path, &[us, 0], std::fs::Metadata::is_file) {
        Ok(None) => {}
        Ok(Some(by)) => {
            let at = by.path.display();
            let remedy = if [us, 0].contains(&by.owner) {
                format!("run `chmod go-w {at}`")
            } else {
                format!("it must belong to the broker's own uid {us} or to root")
            };
            let (owner, mode) = (by.owner, by.mode);
            report.problem(
                whole(path),
                format!("other users can replace it, and so run programs as the broker, because {at} belongs to uid {owner} and has mode {mode:04o}; {remedy}"),
            );
        }
        Err(error) => {
            report.problem(whole(path), format!("the directories above it cannot be checked: {error}"));
        }
    }
}

/// Opens a regular file. Others are refused before they are read: a pipe could keep the broker waiting without end.
fn opened(path: &Path, report: &mut Report) -> Option<File> {
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits();
    let opened = OpenOptions::new().read(true).custom_flags(flags.cast_signed()).open(path);
    let problem = match opened.and_then(|file| Ok((file.metadata()?.file_type(), file))) {
        Ok((kind, file)) if kind.is_file() => return Some(file),
        Ok((kind, _)) => format!("is {}; it must be a regular file", name(kind)),
        Err(error) => format!("cannot be read: {error}"),
    };
    report.problem(whole(path), problem);
    None
}

fn name(kind: FileType) -> &'static str {
    match kind {
        _ if kind.is_fifo() => "a pipe",
        _ if kind.is_dir() => "a directory",
        _ => "a device",
    }
}

fn bytes(file: &mut File, path: &Path, limit: u64, report: &mut Report) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let read: io::Result<usize> = file.take(limit + 1).read_to_end(&mut bytes);
    match read {
        Ok(size) if size as u64 <= limit => return Some(bytes),
        Ok(_) => report.problem(whole(path), format!("has more than {limit} bytes")),
        Err(error) => report.problem(whole(path), format!("cannot be read: {error}")),
    }
    None
}

#[cfg(test)]
mod tests;
