use std::{
    io::{ErrorKind, Read},
    os::unix::{fs::PermissionsExt, net::UnixListener},
};

use super::*;

#[test]
fn it_connects_without_blocking_afterwards() {
    let directory = tempfile::tempdir().unwrap();
    let listener = UnixListener::bind(directory.path().join("socket")).unwrap();
    let mut stream = Directory::open(directory.path()).unwrap().connect(Path::new("socket")).unwrap();
    let _accepted = listener.accept().unwrap();
    assert_eq!(stream.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
}

#[test]
fn it_knows_the_owner_and_the_mode_of_a_directory_and_refuses_a_file() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o750)).unwrap();
    let opened = Directory::open(directory.path()).unwrap();
    assert_eq!((opened.owner, opened.mode), (rustix::process::geteuid().as_raw(), 0o750));
    assert!(!opened.is_read_only().unwrap());
    let file = directory.path().join("file");
    std::fs::write(&file, "").unwrap();
    std::fs::create_dir(directory.path().join("below")).unwrap();
    assert!(opened.below(Path::new("below")).unwrap().is_some());
    assert!(opened.below(Path::new("file")).unwrap().is_none());
    assert!(opened.below(Path::new("none")).unwrap().is_none());
    assert_eq!(Directory::open(&file).unwrap_err().kind(), ErrorKind::NotADirectory);
}
