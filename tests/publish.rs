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

use credbroker_client::paths::Exposed;
use credbroker_uds_server::{SocketError, SocketOptions, publish};

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
    for (socket_mode, directory_mode) in [(0o600, 0o700), (0o660, 0o750), (0o666, 0o755)] {
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
    assert!(matches!(error, SocketError::Directory(Exposed { mode: 0o777, .. })), "{error}");
    assert!(publish(&SocketOptions { shared_directory: true, ..options }).is_ok());
}

/// The modes of a Kubernetes `emptyDir`: on disk or in memory, without and with `fsGroup`.
const SHARED: [u32; 4] = [0o777, 0o1777, 0o2777, 0o3777];

#[test]
fn in_a_shared_directory_the_socket_is_in_a_folder_that_only_the_broker_can_change() {
    for shared in SHARED {
        let root = directory();
        fs::set_permissions(root.path(), fs::Permissions::from_mode(shared)).unwrap();
        let path = root.path().join("credbroker.sock");
        let (folder, socket) =
            (root.path().join("credbroker.sock.d"), root.path().join("credbroker.sock.d/socket"));
        let options = SocketOptions { mode: 0o666, shared_directory: true, ..options(path.clone()) };
        for _ in 0..2 {
            let published = publish(&options).unwrap();
            let set_group = shared & 0o2000;
            assert_eq!((mode(&folder), mode(&socket)), (0o711 | set_group, 0o666), "{shared:o}");
            assert_eq!(fs::metadata(&path).unwrap().ino(), fs::metadata(&socket).unwrap().ino());
            for name in [&path, &socket] {
                assert!(UnixStream::connect(name).is_ok());
            }
            let error = publish(&options).unwrap_err();
            assert!(matches!(error, SocketError::AlreadyRunning { .. }), "{error}");
            drop(published);
            assert!(!path.exists() && !socket.exists(), "both names are removed");
        }
        let own = fs::metadata(&folder).unwrap().gid();
        let grouped = SocketOptions { mode: 0o660, group: Some(own), ..options };
        let _published = publish(&grouped).unwrap();
        assert_eq!((mode(&folder) & 0o777, mode(&socket)), (0o710, 0o660));
    }
}

#[test]
fn a_folder_one_level_below_a_shared_directory_is_made_like_that_too() {
    for shared in SHARED {
        let root = directory();
        fs::set_permissions(root.path(), fs::Permissions::from_mode(shared)).unwrap();
        let path = root.path().join("broker/credbroker.sock");
        let options = SocketOptions { mode: 0o660, shared_directory: true, ..options(path.clone()) };
        let published = publish(&options).unwrap();
        assert_eq!((mode(path.parent().unwrap()) & 0o777, mode(&path)), (0o711, 0o660));
        drop(published);
        // As after a crash between its steps.
        fs::set_permissions(path.parent().unwrap(), fs::Permissions::from_mode(0o700)).unwrap();
        let _published = publish(&options).unwrap();
        assert_eq!(mode(path.parent().unwrap()) & 0o777, 0o711);
    }
}

#[test]
fn what_is_in_the_place_of_the_brokers_own_folder_is_not_used() {
    let root = directory();
    fs::set_permissions(root.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let folder = root.path().join("credbroker.sock.d");
    let options = SocketOptions { shared_directory: true, ..options(root.path().join("credbroker.sock")) };
    let elsewhere = directory();
    std::os::unix::fs::symlink(elsewhere.path(), &folder).unwrap();
    assert!(matches!(publish(&options), Err(SocketError::Folder { .. })));
    fs::remove_file(&folder).unwrap();
    fs::write(&folder, "").unwrap();
    assert!(matches!(publish(&options), Err(SocketError::Folder { .. })));
    assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 0);
    if !rustix::process::geteuid().is_root() {
        return println!("SKIPPED: only root can make a directory of another user");
    }
    fs::remove_file(&folder).unwrap();
    fs::create_dir(&folder).unwrap();
    std::os::unix::fs::chown(&folder, Some(1001), None).unwrap();
    assert!(matches!(publish(&options), Err(SocketError::Folder(_, 1001))));
}

#[test]
fn a_directory_above_that_others_can_write_to_is_refused_unless_it_is_sticky_or_shared_on_purpose() {
    let root = directory();
    let path = root.path().join("open/run/credbroker.sock");
    fs::create_dir(root.path().join("open")).unwrap();
    for (open, is_refused) in [(0o777, true), (0o755, false), (0o1777, false)] {
        fs::set_permissions(root.path().join("open"), fs::Permissions::from_mode(open)).unwrap();
        let refusal = publish(&options(path.clone())).err();
        assert_eq!(refusal.is_some(), is_refused, "{open:o}: {refusal:?}");
        if let Some(refusal) = refusal {
            let SocketError::Exposed(_, by) = refusal else { panic!("{refusal}") };
            assert_eq!((by.path.file_name().unwrap().to_str(), by.mode), (Some("open"), open));
        }
    }
    fs::set_permissions(root.path().join("open"), fs::Permissions::from_mode(0o777)).unwrap();
    assert!(publish(&SocketOptions { shared_directory: true, ..options(path) }).is_ok());
    let deeper = root.path().join("open/a/run/credbroker.sock");
    fs::create_dir_all(deeper.parent().unwrap()).unwrap();
    for directory in ["open/a", "open/a/run"] {
        fs::set_permissions(root.path().join(directory), fs::Permissions::from_mode(0o755)).unwrap();
    }
    let refusal = publish(&SocketOptions { shared_directory: true, ..options(deeper) }).unwrap_err();
    assert!(matches!(refusal, SocketError::Exposed { .. }), "only one directory is shared: {refusal}");
}

#[test]
fn a_directory_of_another_user_above_is_refused() {
    if !rustix::process::geteuid().is_root() {
        return println!("SKIPPED: only root can make a directory of another user");
    }
    let root = directory();
    let path = root.path().join("theirs/run/credbroker.sock");
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::set_permissions(path.parent().unwrap(), fs::Permissions::from_mode(0o700)).unwrap();
    fs::set_permissions(root.path().join("theirs"), fs::Permissions::from_mode(0o755)).unwrap();
    assert!(publish(&options(path.clone())).is_ok());
    std::os::unix::fs::chown(root.path().join("theirs"), Some(1001), None).unwrap();
    let refusal = publish(&options(path)).unwrap_err();
    assert!(matches!(refusal, SocketError::Exposed(_, Exposed { owner: 1001, .. })), "{refusal}");
}

#[test]
fn a_path_that_the_kernel_cannot_take_is_refused_by_name() {
    let long = PathBuf::from(format!("/tmp/{}", "x".repeat(110)));
    assert!(matches!(publish(&options(long)), Err(error) if error.to_string().contains("has 115 bytes")));
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
