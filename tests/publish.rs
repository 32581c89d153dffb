//! Publishing the socket, on real directories.
//!
//! A separate binary that starts no process: a child holds every descriptor of its parent for the moment between fork
//! and exec, a listener and a lock too, and so a socket that was just closed would look alive.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests end by panics")]

use std::{
    fs,
    os::unix::{
        fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _},
        net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
};

use credbroker::server::{SocketError, SocketOptions, publish};

fn directory() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o700)).unwrap();
    directory
}

fn options(path: PathBuf) -> SocketOptions {
    SocketOptions { path, mode: 0o600, group: None, shared_directory: false }
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

#[test]
fn directory_and_socket_get_their_modes() {
    let root = directory();
    for (socket_mode, directory_mode) in [(0o600, 0o700), (0o660, 0o750)] {
        let path = root.path().join(format!("{socket_mode:o}/credbroker.sock"));
        let (_listener, _published) =
            publish(&SocketOptions { mode: socket_mode, ..options(path.clone()) }).unwrap();
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (socket_mode, directory_mode));
        assert!(UnixStream::connect(&path).is_ok());
    }
}

#[test]
fn a_stale_socket_is_replaced_and_the_own_one_removed_at_the_end() {
    let root = directory();
    let path = root.path().join("credbroker.sock");
    drop(UnixListener::bind(&path).unwrap()); // its name stays
    let (listener, published) = publish(&options(path.clone())).unwrap();
    assert!(UnixStream::connect(&path).is_ok());
    drop((listener, published));
    assert!(!path.exists());
}

#[test]
fn a_live_predecessor_is_not_displaced() {
    let root = directory();
    let path = root.path().join("credbroker.sock");
    let _published = publish(&options(path.clone())).unwrap();
    let error = publish(&options(path.clone())).unwrap_err();
    assert!(matches!(error, SocketError::AlreadyRunning { .. }), "{error}");
    let other = root.path().join("other.sock");
    let _foreign = UnixListener::bind(&other).unwrap(); // holds no lock of ours
    let error = publish(&options(other.clone())).unwrap_err();
    assert!(matches!(error, SocketError::AlreadyRunning { .. }), "{error}");
    assert!(UnixStream::connect(&path).is_ok() && UnixStream::connect(&other).is_ok());
}

#[test]
fn a_foreign_file_and_a_link_are_not_touched() {
    let root = directory();
    let (file, link) = (root.path().join("file"), root.path().join("link"));
    fs::write(&file, "precious").unwrap();
    std::os::unix::fs::symlink(&file, &link).unwrap();
    for path in [&file, &link] {
        let error = publish(&options(path.clone())).unwrap_err();
        assert!(matches!(error, SocketError::ForeignFile { .. }), "{error}");
    }
    assert_eq!(fs::read(&file).unwrap(), b"precious");
}

#[test]
fn a_directory_that_others_can_write_to_is_refused_unless_it_is_shared_on_purpose() {
    let root = directory();
    fs::set_permissions(root.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let options = options(root.path().join("credbroker.sock"));
    let error = publish(&options).unwrap_err();
    assert!(matches!(error, SocketError::Directory { mode: 0o777, .. }), "{error}");
    assert!(publish(&SocketOptions { shared_directory: true, ..options }).is_ok());
}

#[test]
fn a_path_that_the_kernel_cannot_take_is_refused_by_name() {
    let long = PathBuf::from(format!("/tmp/{}", "x".repeat(110)));
    assert!(matches!(publish(&options(long)), Err(SocketError::PathTooLong { length: 115, .. })));
    assert!(matches!(publish(&options("relative.sock".into())), Err(SocketError::PathInvalid { .. })));
}

#[test]
fn no_wider_mode_and_no_gap_is_ever_visible() {
    let root = directory();
    let path = root.path().join("credbroker.sock");
    drop(UnixListener::bind(&path).unwrap());
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let (elsewhere, done) = (directory(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let _done = SetAtEnd(&done);
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                for found in fs::read_dir(root.path()).unwrap().flatten() {
                    let Ok(found) = found.path().symlink_metadata() else { continue };
                    assert_eq!(found.mode() & 0o177, 0, "another user could connect");
                }
                let found = fs::symlink_metadata(&path).expect("the name is always there");
                assert!(found.file_type().is_socket());
            }
        });
        for _ in 0..200 {
            let (listener, published) = publish(&options(path.clone())).unwrap();
            // As after a crash: a socket without a listener, and no lock.
            let stale = elsewhere.path().join("stale");
            drop((listener, UnixListener::bind(&stale).unwrap()));
            fs::set_permissions(&stale, fs::Permissions::from_mode(0o600)).unwrap();
            fs::rename(&stale, &path).unwrap();
            drop(published); // keeps a name that now belongs to another socket
        }
    });
}

/// Set even when the test fails, or the other thread would never end.
struct SetAtEnd<'a>(&'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
