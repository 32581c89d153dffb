//! Real directories and sockets, of several users where this process is root.

use std::{
    ffi::OsString,
    fs::{Permissions, set_permissions},
    os::unix::{fs::PermissionsExt, net::UnixListener},
};

use credbroker_test_support::{TrustCase, Verdict, as_user, private_directory};

use super::*;
use crate::SocketSources;

#[test]
fn a_real_directory_is_judged_by_its_mode() {
    let directory = private_directory();
    let socket = directory.path().join("broker.sock");
    let _listener = UnixListener::bind(&socket).unwrap();
    connect(&Socket::at(&socket)).unwrap();
    set_permissions(directory.path(), Permissions::from_mode(0o777)).unwrap();
    let refused = connect(&Socket::at(&socket));
    let writable = Distrust::DirectoryWritable { mode: 0o777 };
    assert!(
        matches!(&refused, Err(Error::Untrusted { path, reason }) if *path == socket && *reason == writable.into()),
        "{refused:?}"
    );
}

#[test]
fn a_directory_on_a_read_only_mount_passes_with_any_owner_and_mode() {
    // /sys is mounted read-only in containers. Elsewhere it belongs to root, so this finds no socket either way.
    let outcome = connect(&Socket::at("/sys/broker.sock"));
    assert!(matches!(outcome, Err(Error::Unreachable { .. })), "{outcome:?}");
}

#[test]
fn the_table_of_trusted_sockets_holds() {
    for case in TrustCase::all() {
        let broker_uid = case.broker_uid.map(|uid| OsString::from(uid.to_string()));
        let sources = SocketSources::new()
            .variable(case.socket.as_deref().map(Path::as_os_str))
            .runtime_directory(case.runtime_directory.as_deref().map(Path::as_os_str))
            .broker_uid_variable(broker_uid.as_deref());
        let socket = Socket::locate(&sources).unwrap();
        match as_user(case.client, || connect(&socket).map(drop)) {
            Ok(()) => case.check(Verdict::Trusted, ""),
            Err(error @ Error::Untrusted { .. }) => case.check(Verdict::Untrusted, &error.to_string()),
            // There is no socket of the system here, or one that is not asked.
            Err(error @ Error::Unreachable { .. }) => case.check(Verdict::Ignored, &error.to_string()),
            Err(error) => panic!("{}: {error:?}", case.name),
        }
    }
}
