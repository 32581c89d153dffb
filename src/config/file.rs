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
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _};

    use credbroker_test_support::private_directory;

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

    fn problems(path: &Path, read: fn(&Path, &mut Report) -> Option<Vec<u8>>) -> Vec<String> {
        let mut report = Report::default();
        read(path, &mut report);
        report.problems.into_iter().map(|problem| problem.message).collect()
    }

    #[test]
    fn what_is_not_a_regular_file_is_refused_without_being_read() {
        let dir = private_directory();
        let pipe = dir.path().join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0)
            .unwrap();
        for (path, what) in
            [(&*pipe, "a pipe"), (dir.path(), "a directory"), (Path::new("/dev/zero"), "a device")]
        {
            for read in [config, kubeconfig] {
                assert_eq!(problems(path, read), [format!("is {what}; it must be a regular file")]);
            }
        }
    }

    #[test]
    fn a_config_that_others_can_replace_is_refused() {
        let dir = private_directory();
        let (open, path) = (dir.path().join("open"), dir.path().join("open/credbroker/config.yaml"));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "x").unwrap();
        let allow = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        allow(&path, 0o600);
        allow(path.parent().unwrap(), 0o755);
        for (mode, refused) in [(0o755, false), (0o775, true), (0o757, true), (0o1777, false)] {
            allow(&open, mode);
            let found = problems(&path, config);
            assert_eq!(found.len(), usize::from(refused), "{mode:o}: {found:?}");
            assert!(found.iter().all(|found| found.contains("/open belongs to uid")), "{found:?}");
            assert_eq!(problems(&path, kubeconfig), [""; 0], "kubectl trusts every kubeconfig");
        }
        // As a ConfigMap is mounted, where it is not read-only: the name is a link.
        allow(&open, 0o755);
        let link = dir.path().join("config.yaml");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert_eq!(problems(&link, config), [""; 0]);
        allow(&open, 0o777);
        assert_eq!(problems(&link, config).len(), 1, "through the link");
    }

    #[test]
    fn a_config_that_others_may_write_is_refused() {
        let dir = private_directory();
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
        let dir = private_directory();
        let mut report = Report::default();
        assert!(kubeconfig(&dir.path().join("absent"), &mut report).is_none());
        assert!(report.problems.is_empty());
        assert!(config(&dir.path().join("absent"), &mut report).is_none());
        assert_eq!(report.problems.len(), 1);
    }

    #[test]
    fn authorities_are_a_regular_file_of_limited_size() {
        let dir = private_directory();
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
        let dir = private_directory();
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
