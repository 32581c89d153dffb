//! Real directories and sockets, of several users where this process is root.

use std::{
    fs::{self, DirBuilder, Permissions, set_permissions},
    os::unix::{
        fs::{DirBuilderExt, PermissionsExt, chown, lchown, symlink},
        net::UnixListener,
    },
    thread,
};

use credbroker_test_support::private_directory;
use rustix::{
    process::{Gid, Uid, geteuid},
    thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid},
};
use tempfile::TempDir;

use super::*;

const BROKER: u32 = 2001;
const CLIENT: u32 = 1001;
const THIRD: u32 = 1002;

#[test]
fn a_real_directory_is_judged_by_its_mode() {
    let directory = private_directory();
    let socket = directory.path().join("broker.sock");
    let _listener = UnixListener::bind(&socket).unwrap();
    connect(&Socket::at(&socket)).unwrap();
    set_permissions(directory.path(), Permissions::from_mode(0o777)).unwrap();
    let refused = connect(&Socket::at(&socket));
    let writable = TrustError::DirectoryWritable { mode: 0o777 };
    assert!(
        matches!(&refused, Err(Error::Untrusted { path, reason }) if *path == socket && *reason == writable),
        "{refused:?}"
    );
}

#[test]
fn a_directory_on_a_read_only_mount_passes_with_any_owner_and_mode() {
    // /sys is mounted read-only in containers. Elsewhere it belongs to root, so this finds no socket either way.
    let outcome = connect(&Socket::at("/sys/broker.sock"));
    assert!(matches!(outcome, Err(Error::Unreachable { .. })), "{outcome:?}");
}

/// A directory that every user can reach.
struct Place(TempDir);

impl Place {
    /// `None`, and a word about it, where this process cannot act as other users.
    fn new() -> Option<Self> {
        if !geteuid().is_root() {
            println!("SKIPPED: only root can act as other users");
            return None;
        }
        let place = Self(private_directory());
        place.directory("", 0, 0o755);
        Some(place)
    }

    fn path(&self, path: &str) -> PathBuf {
        if path.is_empty() { self.0.path().to_owned() } else { self.0.path().join(path) }
    }

    fn directory(&self, path: &str, owner: u32, mode: u32) -> &Self {
        let path = self.path(path);
        DirBuilder::new().recursive(true).mode(0o700).create(&path).unwrap();
        chown(&path, Some(owner), Some(owner)).unwrap();
        set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        self
    }

    /// A process of `uid` listens at `path`.
    fn listen(&self, path: &str, uid: u32) -> UnixListener {
        let path = self.path(path);
        let listener = UnixListener::bind(&path).unwrap();
        set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
        // The kernel records the user of the last call.
        as_user(uid, || rustix::net::listen(&listener, 16).unwrap());
        listener
    }

    /// What `client` makes of the socket at `path`.
    fn judged(&self, path: &str, client: u32, expected: Option<u32>) -> Result<(), TrustError> {
        let socket = Socket::at(self.path(path));
        let socket = expected.map_or(socket.clone(), |uid| socket.server_uid(uid));
        match as_user(client, || connect(&socket).map(drop)) {
            Ok(()) => Ok(()),
            Err(Error::Untrusted { reason, .. }) => Err(reason),
            Err(error) => panic!("{path}: {error:?}"),
        }
    }

    fn replaceable(&self, path: &str, owner: u32, mode: u32) -> Result<(), TrustError> {
        let directory = self.path(path).canonicalize().unwrap();
        Err(TrustError::Replaceable { directory, owner, mode })
    }
}

/// Runs `act` on a thread of another user.
fn as_user<T: Send>(uid: u32, act: impl FnOnce() -> T + Send) -> T {
    let acting = || {
        let user = Uid::from_raw(uid);
        set_thread_groups(&[]).unwrap();
        set_thread_res_gid(None, Some(Gid::from_raw(uid)), None).unwrap();
        set_thread_res_uid(None, Some(user), None).unwrap();
        act()
    };
    thread::scope(|scope| scope.spawn(acting).join()).unwrap()
}

#[test]
fn a_broker_of_another_user_is_trusted_in_its_own_folder() {
    let Some(place) = Place::new() else { return };
    for (above, is_trusted) in
        [(0o755, true), (0o1777, true), (0o3777, true), (0o777, false), (0o2777, false), (0o775, false)]
    {
        place.directory("shared", 0, above).directory("shared/folder", BROKER, 0o711);
        fs::remove_file(place.path("shared/folder/socket")).ok();
        let _broker = place.listen("shared/folder/socket", BROKER);
        let judged = place.judged("shared/folder/socket", CLIENT, None);
        let expected = if is_trusted { Ok(()) } else { place.replaceable("shared", 0, above) };
        assert_eq!(judged, expected, "{above:o}");
        assert_eq!(place.judged("shared/folder/socket", CLIENT, Some(BROKER)), Ok(()), "{above:o}");
        let other = TrustError::OtherServer { uid: BROKER, expected: THIRD };
        assert_eq!(place.judged("shared/folder/socket", CLIENT, Some(THIRD)), Err(other), "{above:o}");
        assert_eq!(place.judged("shared/folder/socket", BROKER, None), Ok(()), "the broker's own user");
    }
}

#[test]
fn the_own_folder_is_found_beside_the_name_in_a_shared_directory() {
    let Some(place) = Place::new() else { return };
    for (above, is_trusted) in [(0o1777, true), (0o3777, true), (0o777, false), (0o2777, false)] {
        place.directory("shared", 0, above).directory("shared/credbroker.sock.d", BROKER, 0o711);
        fs::remove_file(place.path("shared/credbroker.sock.d/socket")).ok();
        let _broker = place.listen("shared/credbroker.sock.d/socket", BROKER);
        let expected = if is_trusted { Ok(()) } else { place.replaceable("shared", 0, above) };
        assert_eq!(place.judged("shared/credbroker.sock", CLIENT, None), expected, "{above:o}");
        assert_eq!(place.judged("shared/credbroker.sock", CLIENT, Some(BROKER)), Ok(()), "{above:o}");
        // As `credbroker status` in the broker's own container.
        assert_eq!(place.judged("shared/credbroker.sock", BROKER, None), Ok(()), "{above:o}");
    }
}

#[test]
fn a_folder_that_others_can_write_to_is_never_trusted() {
    let Some(place) = Place::new() else { return };
    for mode in [0o777, 0o773, 0o721] {
        place.directory("folder", BROKER, mode);
        fs::remove_file(place.path("folder/socket")).ok();
        let _broker = place.listen("folder/socket", BROKER);
        let refusal = Err(TrustError::DirectoryWritable { mode });
        assert_eq!(place.judged("folder/socket", CLIENT, None), refusal);
        assert_eq!(place.judged("folder/socket", CLIENT, Some(BROKER)), refusal);
    }
}

#[test]
fn the_server_must_own_the_folder() {
    let Some(place) = Place::new() else { return };
    place.directory("folder", BROKER, 0o711);
    let _stranger = place.listen("folder/socket", THIRD);
    let refusal = Err(TrustError::Server { uid: THIRD });
    assert_eq!(place.judged("folder/socket", CLIENT, None), refusal);
    assert_eq!(place.judged("folder/socket", 0, None), refusal);
}

#[test]
fn root_is_a_client_of_a_users_broker() {
    let Some(place) = Place::new() else { return };
    place.directory("home", BROKER, 0o700).directory("home/run", BROKER, 0o700);
    let _broker = place.listen("home/run/socket", BROKER);
    assert_eq!(place.judged("home/run/socket", 0, None), Ok(()));
    place.directory("home", THIRD, 0o755);
    assert_eq!(place.judged("home/run/socket", 0, None), place.replaceable("home", THIRD, 0o755));
}

#[test]
fn a_link_of_a_third_user_on_the_way_is_not_followed() {
    let Some(place) = Place::new() else { return };
    place.directory("theirs", BROKER, 0o755);
    let _broker = place.listen("theirs/socket", BROKER);
    symlink(place.path("theirs"), place.path("run")).unwrap();
    assert_eq!(place.judged("run/socket", CLIENT, None), Ok(()), "a link of root's");
    lchown(place.path("run"), Some(THIRD), None).unwrap();
    let refusal = place.judged("run/socket", CLIENT, None);
    assert!(matches!(refusal, Err(TrustError::Replaceable { owner: THIRD, .. })), "{refusal:?}");
}
