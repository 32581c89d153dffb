use std::{fs, os::unix::fs::symlink};

use credbroker_test_support::private_directory;

use super::*;

fn taken(path: &Path, inputs: &[PathBuf], may_replace: bool) -> anyhow::Result<Locked> {
    open(path, inputs, "x", |_| may_replace).map(|(file, _)| file)
}

#[test]
fn an_input_is_never_written_however_it_is_named() {
    let dir = private_directory();
    let path = |name: &str| dir.path().join(name);
    fs::write(path("config"), "original").unwrap();
    symlink(path("config"), path("link")).unwrap();
    fs::hard_link(path("config"), path("hard")).unwrap();
    fs::create_dir(path("sub")).unwrap();
    for output in ["config", "link", "hard", "sub/../config"] {
        for input in ["config", "link"] {
            let error = taken(&path(output), &[path(input)], true).unwrap_err().to_string();
            assert!(error.contains("never written"), "{output} {input}: {error}");
        }
    }
    assert_eq!(fs::read_to_string(path("config")).unwrap(), "original");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 4, "no lock is left");
}

#[test]
fn a_file_with_contents_is_replaced_only_if_that_is_allowed() {
    let dir = private_directory();
    let path = |name: &str| dir.path().join(name);
    fs::write(path("text"), "precious").unwrap();
    let error = taken(&path("text"), &[], false).unwrap_err().to_string();
    assert!(
        error.contains("`credbroker kubeconfig x` did not write") && error.contains("--force"),
        "{error}"
    );
    assert_eq!(fs::read_to_string(path("text")).unwrap(), "precious");
    taken(&path("text"), &[], true).unwrap().write_private("new").unwrap();
    assert_eq!(fs::read_to_string(path("text")).unwrap(), "new");
    fs::write(path("empty"), "\n").unwrap();
    for name in ["empty", "absent"] {
        taken(&path(name), &[], false).unwrap().write_private("new").unwrap();
    }
}
