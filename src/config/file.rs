//! Reading files that decide what runs.

use std::{
    fs::File,
    io::{self, Read as _},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

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
/// user or to root, and only its owner may be able to write it.
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
            if metadata.mode() & 0o022 != 0 && metadata.is_file() {
                report.problem(
                    whole(path),
                    format!("users other than its owner can write it, and so run programs as the broker; run `chmod go-w {}`", path.display()),
                );
            }
        }
        Err(error) => report.problem(whole(path), format!("cannot be read: {error}")),
    }
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
    if file.metadata().is_ok_and(|metadata| metadata.mode() & 0o002 != 0 && metadata.is_file()) {
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
pub(super) fn authorities(path: &Path) -> io::Result<Vec<u8>> {
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

fn opened(path: &Path, report: &mut Report) -> Option<File> {
    let opened = File::open(path);
    opened.map_err(|error| report.problem(whole(path), format!("cannot be read: {error}"))).ok()
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
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _};

    use super::*;

    #[test]
    fn a_tilde_is_the_home_directory() {
        let env: Environment = [("HOME", "/home/u")].into_iter().collect();
        let table = [
            ("~/.kube/config", "/home/u/.kube/config"),
            ("~", "/home/u"),
            ("~u/x", "~u/x"),
            ("/a/~", "/a/~"),
        ];
        for (path, expected) in table {
            assert_eq!(expand(path, &env), Path::new(expected));
        }
        assert_eq!(expand("~/x", &Environment::default()), Path::new("~/x"));
    }

    #[test]
    fn a_relative_path_is_below_the_directory_of_its_file() {
        let table = [("./bin/x", "/d/bin/x"), ("bin/x", "/d/bin/x"), ("../x", "/d/../x"), ("/x", "/x")];
        for (path, expected) in table {
            assert_eq!(below(Path::new("/d"), path).as_os_str(), expected);
        }
    }

    #[test]
    fn a_config_that_others_may_write_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.yaml");
        fs::write(&path, "x").unwrap();
        let problems = |mode: u32, read: fn(&Path, &mut Report) -> Option<Vec<u8>>| {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let mut report = Report::default();
            assert!(read(&path, &mut report).is_some());
            report.problems.len()
        };
        assert_eq!([0o600, 0o644, 0o660, 0o606].map(|mode| problems(mode, config)), [0, 0, 1, 1]);
        assert_eq!([0o600, 0o644, 0o660, 0o606].map(|mode| problems(mode, kubeconfig)), [0, 0, 0, 1]);
    }

    #[test]
    fn a_missing_config_is_a_problem_and_a_missing_kubeconfig_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let mut report = Report::default();
        assert!(kubeconfig(&dir.path().join("absent"), &mut report).is_none());
        assert!(report.problems.is_empty());
        assert!(config(&dir.path().join("absent"), &mut report).is_none());
        assert_eq!(report.problems.len(), 1);
    }

    #[test]
    fn authorities_are_a_regular_file_of_limited_size() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ca.pem");
        fs::write(&path, vec![b'#'; 1 << 20]).unwrap();
        assert_eq!(authorities(&path).unwrap().len(), 1 << 20);
        fs::write(&path, vec![b'#'; (1 << 20) + 1]).unwrap();
        assert_eq!(authorities(&path).unwrap_err().to_string(), "it has more than 1048576 bytes");
        for unending in ["/dev/zero", dir.path().to_str().unwrap()] {
            let error = authorities(Path::new(unending)).unwrap_err();
            assert_eq!(error.to_string(), "it is not a regular file");
        }
    }

    #[test]
    fn a_config_has_a_limited_size() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.yaml");
        let mut report = Report::default();
        fs::write(&path, vec![b'#'; 1 << 20]).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert!(config(&path, &mut report).is_some());
        fs::write(&path, vec![b'#'; (1 << 20) + 1]).unwrap();
        assert!(config(&path, &mut report).is_none());
        assert_eq!(report.problems.len(), 1);
    }
}
