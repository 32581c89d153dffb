use std::{fs, os::unix::fs::PermissionsExt as _};

use credbroker_test_support::private_directory;

use super::*;

#[test]
fn a_tilde_is_the_home_directory() {
    let env: Environment = [("HOME", "/home/u")].into_iter().collect();
    let table =
        [("~/.kube/config", "/home/u/.kube/config"), ("~", "/home/u"), ("~u/x", "~u/x"), ("/a/~", "/a/~")];
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

fn problems(path: &Path, read: fn(&Path, &Report) -> Option<Vec<u8>>) -> Vec<String> {
    let report = Report::default();
    read(path, &report);
    report.findings.into_inner().problems.into_iter().map(|problem| problem.message).collect()
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
    for (mode, refused) in [(0o755, false), (0o777, true), (0o757, true), (0o1777, false)] {
        allow(&open, mode);
        for read in [config, kubeconfig] {
            let found = problems(&path, read);
            assert_eq!(found.len(), usize::from(refused), "{mode:o}: {found:?}");
            assert!(found.iter().all(|found| found.contains("/open belongs to uid")), "{found:?}");
        }
        assert_eq!(distrust(&path).unwrap().is_some(), refused, "{mode:o}");
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
    let problems = |mode: u32, read: fn(&Path, &Report) -> Option<Vec<u8>>| {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let report = Report::default();
        assert!(read(&path, &report).is_some());
        report.problems()
    };
    for read in [config, kubeconfig] {
        assert_eq!([0o600, 0o644, 0o666, 0o606].map(|mode| problems(mode, read)), [0, 0, 1, 1]);
        if std::os::unix::fs::chown(&path, None, Some(3101)).is_err() {
            println!("SKIPPED: only root can give a file to another group");
            return;
        }
        assert_eq!([0o640, 0o660].map(|mode| problems(mode, read)), [0, 1]);
        std::os::unix::fs::chown(&path, Some(3101), None).unwrap();
        assert_eq!([0o600, 0o666].map(|mode| problems(mode, read)), [1, 2]);
        std::os::unix::fs::chown(&path, Some(0), Some(0)).unwrap();
    }
}

#[test]
fn a_missing_config_is_a_problem_and_a_missing_kubeconfig_is_none() {
    let dir = private_directory();
    let report = Report::default();
    assert!(kubeconfig(&dir.path().join("absent"), &report).is_none());
    assert!(report.findings.borrow().problems.is_empty());
    assert!(config(&dir.path().join("absent"), &report).is_none());
    assert_eq!(report.problems(), 1);
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
    let report = Report::default();
    fs::write(&path, vec![b'#'; 1 << 20]).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    assert!(config(&path, &report).is_some());
    fs::write(&path, vec![b'#'; (1 << 20) + 1]).unwrap();
    assert!(config(&path, &report).is_none());
    assert_eq!(report.problems(), 1);
}

/// Bytes that this thread has read.
fn bytes_read() -> u64 {
    let counts = fs::read_to_string("/proc/thread-self/io").unwrap();
    counts.lines().find_map(|line| line.strip_prefix("rchar: ")).unwrap().parse().unwrap()
}

#[test]
fn a_file_that_is_too_large_is_refused_without_being_read() {
    let dir = private_directory();
    let path = dir.path().join("config");
    File::create(&path).unwrap().set_len(MAX_KUBECONFIG + 1).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let before = bytes_read();
    assert_eq!(problems(&path, config), ["has more than 1048576 bytes"]);
    assert_eq!(problems(&path, kubeconfig), ["has more than 16777216 bytes"]);
    let read = bytes_read() - before;
    assert!(read < 1 << 20, "{read} bytes");
}

#[test]
fn a_file_is_read_into_one_block_of_its_size() {
    let dir = private_directory();
    let path = dir.path().join("config");
    for size in [0, 1, 100_000, 1_000_000] {
        fs::write(&path, vec![b'#'; size]).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        for read in [config, kubeconfig] {
            let bytes = read(&path, &Report::default()).unwrap();
            assert_eq!((bytes.len(), bytes.capacity()), (size, size));
        }
    }
}
