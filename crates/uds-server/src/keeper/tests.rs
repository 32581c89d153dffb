use std::{
    fs,
    os::unix::{
        fs::{DirBuilderExt as _, symlink},
        net::UnixStream,
    },
};

use super::*;
use crate::{SocketOptions, publish};

fn directory() -> tempfile::TempDir {
    credbroker_test_support::private_directory()
}

fn look(keeper: &Keeper) -> Result<Option<StdListener>, String> {
    keeper.0.lock().unwrap().look()
}

fn is_lost(keeper: &Keeper, why: &str) -> bool {
    look(keeper).is_err_and(|lost| lost.contains(why))
}

fn published(path: &Path) -> (StdListener, Keeper) {
    let options = SocketOptions { path: path.into(), mode: 0o600, group: None, shared_directory: false };
    let (listener, publication) = publish(&options).unwrap();
    (listener, Keeper::new(SocketOrigin::Published(publication)))
}

#[test]
fn a_socket_of_systemds_is_only_watched() {
    let root = directory();
    let path = root.path().join("socket");
    let _held = StdListener::bind(&path).unwrap();
    let keeper = Keeper::new(SocketOrigin::Inherited(path.clone()));
    assert!(matches!(look(&keeper), Ok(None)));
    fs::rename(&path, root.path().join("elsewhere")).unwrap();
    assert!(is_lost(&keeper, "systemd holds it"));
    assert!(!path.exists());
    fs::rename(root.path().join("elsewhere"), &path).unwrap();
    assert!(matches!(look(&keeper), Ok(None)), "as it was");
}

#[test]
fn a_socket_that_cannot_be_looked_up_is_not_taken_for_a_removed_one() {
    let root = directory();
    let home = root.path().join("home");
    fs::DirBuilder::new().mode(0o700).create(&home).unwrap();
    let path = home.join("socket");
    let (_published, keeper) = published(&path);
    let other = home.join("other");
    let _held = StdListener::bind(&other).unwrap();
    let inherited = Keeper::new(SocketOrigin::Inherited(other));
    fs::rename(&home, root.path().join("elsewhere")).unwrap();
    symlink(&home, &home).unwrap(); // a loop, so that a lookup is an error
    for keeper in [&keeper, &inherited] {
        assert!(is_lost(keeper, "cannot be looked up"));
    }
    fs::remove_file(&home).unwrap();
    fs::rename(root.path().join("elsewhere"), &home).unwrap();
    for keeper in [&keeper, &inherited] {
        assert!(matches!(look(keeper), Ok(None)));
    }
}

#[test]
fn a_directory_that_others_may_write_to_is_reported_until_it_is_safe_again() {
    use std::os::unix::fs::PermissionsExt as _;

    let root = directory();
    let (_ours, keeper) = published(&root.path().join("socket"));
    let allow = |mode| fs::set_permissions(root.path(), fs::Permissions::from_mode(mode)).unwrap();
    allow(0o777);
    assert!(is_lost(&keeper, "no longer safe") && is_lost(&keeper, "mode 0777"));
    allow(0o700);
    assert!(matches!(look(&keeper), Ok(None)));
}

#[test]
fn a_name_that_was_removed_leads_to_the_new_listener() {
    let root = directory();
    let path = root.path().join("socket");
    let (_old, keeper) = published(&path);
    assert!(matches!(look(&keeper), Ok(None)));
    fs::remove_file(&path).unwrap();
    let Ok(Some(new)) = look(&keeper) else { panic!("published again") };
    let _peer = UnixStream::connect(&path).unwrap();
    new.set_nonblocking(true).unwrap();
    assert!(new.accept().is_ok());
    assert!(matches!(look(&keeper), Ok(None)));
    drop(keeper);
    assert!(!path.exists(), "the newest name is removed at the end");
}

#[test]
fn a_socket_that_was_withdrawn_has_no_name_and_gets_none() {
    let root = directory();
    let path = root.path().join("socket");
    let (listener, keeper) = published(&path);
    let _waiting = UnixStream::connect(&path).unwrap();
    keeper.withdraw();
    assert!(!path.exists());
    assert!(matches!(look(&keeper), Ok(None)));
    assert!(!path.exists() && listener.accept().is_ok(), "it is open");
}

#[test]
fn a_live_socket_of_another_process_is_replaced_when_it_is_gone() {
    let root = directory();
    let path = root.path().join("socket");
    let (_ours, keeper) = published(&path);
    fs::remove_file(&path).unwrap();
    let foreign = StdListener::bind(&path).unwrap();
    assert!(is_lost(&keeper, "another process listens on it"));
    assert!(is_lost(&keeper, "another process listens on it") && path.exists(), "it stays");
    drop(foreign); // its name stays, without a listener
    // A process that another test starts may briefly hold a copy of the listener.
    let replaced = (0..1_000_000).any(|_| matches!(look(&keeper), Ok(Some(_))));
    assert!(replaced);
}

#[tokio::test]
async fn the_watch_of_a_socket_that_is_gone_with_its_directory_is_over_after_a_minute() {
    let root = directory();
    let home = root.path().join("home");
    let (listener, keeper) = published(&home.join("socket"));
    fs::remove_dir_all(&home).unwrap();
    assert!((1..LOST).all(|_| is_lost(&keeper, "ends in a minute") && !keeper.is_lost()));
    assert!(is_lost(&keeper, "ends in a minute") && keeper.is_lost());
    listener.set_nonblocking(true).unwrap();
    let listeners = watch::Sender::new(Arc::new(UnixListener::from_std(listener).unwrap()));
    keeper.run(&listeners, |_| tokio::task::yield_now(), || keeper.is_lost()).await;
    let (_listener, keeper) = published(&home.join("socket"));
    assert!((0..2 * LOST).all(|_| look(&keeper).is_ok()) && !keeper.is_lost());
}

#[test]
fn a_broker_on_a_socket_of_systemds_holds_the_lock_if_it_can() {
    let root = directory();
    let path = root.path().join("socket");
    let _held = StdListener::bind(&path).unwrap();
    let keeper = Keeper::new(SocketOrigin::Inherited(path.clone()));
    assert!(matches!(lock(&path), Err(SocketError::AlreadyRunning(_))));
    let other = Keeper::new(SocketOrigin::Inherited(path.clone()));
    drop(keeper);
    assert!(lock(&path).is_ok() && matches!(look(&other), Ok(None)));
}
