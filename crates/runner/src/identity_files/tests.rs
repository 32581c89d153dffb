use std::{fs, os::unix::fs::symlink};

use credbroker_test_support::private_directory;
use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::*;

#[test]
fn only_a_regular_file_that_is_not_too_large_has_content() {
    let directory = private_directory();
    let path = |name: &str| directory.path().join(name);
    let limit = usize::try_from(LARGEST).unwrap();
    fs::write(path("largest"), vec![b'x'; limit]).unwrap();
    fs::write(path("larger"), vec![b'x'; limit + 1]).unwrap();
    symlink("largest", path("link")).unwrap();
    mknodat(CWD, path("fifo"), FileType::Fifo, Mode::RWXU, 0).unwrap();
    let bytes = |path: &Path| read_selector(path).map(|content| content.len());
    for (name, expected) in [("largest", limit), ("link", limit), ("larger", 0), ("fifo", 0)] {
        assert_eq!(bytes(&path(name)).unwrap(), expected, "{name}");
    }
    assert_eq!(bytes(directory.path()).unwrap(), 0);
    assert_eq!(bytes(Path::new("/dev/zero")).unwrap(), 0);
    assert_eq!(bytes(&path("none")).unwrap_err().kind(), io::ErrorKind::NotFound);
}
