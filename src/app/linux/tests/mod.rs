mod directories;

use std::{
    fs,
    io::Write as _,
    os::unix::fs::{PermissionsExt as _, symlink},
    time::Duration,
};

use credbroker_test_support::private_directory;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tempfile::TempDir;
use tokio::time::timeout;

use super::*;

/// Longer than any machine needs.
const AGES: Duration = Duration::from_secs(60);

fn following(files: &[PathBuf]) -> Watcher {
    let mut watcher = Watcher::start();
    let added = Watches::add(watcher.instance().as_deref(), files);
    assert!(added.is_complete, "inotify works on this machine");
    watcher.replace(added);
    watcher
}

/// The touches up to the first of `file`.
async fn touched(watcher: &mut Watcher, file: &Path) -> Touch {
    let wanted = async {
        loop {
            let touches = watcher.touches().await;
            if let Some((_, touch)) = touches.into_iter().rev().find(|(touched, _)| touched == file) {
                return touch;
            }
        }
    };
    timeout(AGES, wanted).await.expect("it is reported")
}

fn is_readable(watcher: &Watcher) -> bool {
    let inotify = watcher.instance().unwrap();
    let mut sources = [PollFd::new(&*inotify, PollFlags::IN)];
    poll(&mut sources, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() > 0
}

/// A directory without symbolic links above it.
fn directory() -> (TempDir, PathBuf) {
    let dir = private_directory();
    let root = fs::canonicalize(dir.path()).unwrap();
    (dir, root)
}

#[tokio::test]
async fn a_file_is_written_until_it_is_closed() {
    let (_dir, root) = directory();
    let file = root.join("config");
    let mut watcher = following(std::slice::from_ref(&file));
    let mut writer = fs::File::create(&file).unwrap();
    assert_eq!(touched(&mut watcher, &file).await, Touch::Settled, "created");
    writer.write_all(b"1").unwrap();
    assert_eq!(touched(&mut watcher, &file).await, Touch::Written);
    drop(writer);
    assert_eq!(touched(&mut watcher, &file).await, Touch::Settled);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
    assert_eq!(touched(&mut watcher, &file).await, Touch::Settled);
    fs::write(root.join("new"), "2").unwrap();
    fs::rename(root.join("new"), &file).unwrap();
    assert_eq!(touched(&mut watcher, &file).await, Touch::Settled);
    fs::remove_file(&file).unwrap();
    assert_eq!(touched(&mut watcher, &file).await, Touch::Settled);
}

#[tokio::test]
async fn other_files_of_the_directory_are_not_reported() {
    let (_dir, root) = directory();
    let file = root.join("config");
    let mut watcher = following(std::slice::from_ref(&file));
    fs::write(root.join("config.swp"), "1").unwrap();
    fs::write(&file, "1").unwrap();
    let touches = timeout(AGES, watcher.touches()).await.unwrap();
    assert!(touches.iter().all(|(touched, _)| *touched == file), "{touches:?}");
}

/// As an editor that removes the old file first, and a package manager that closes nothing before it has renamed it.
#[tokio::test]
async fn a_file_that_replaces_another_one_is_written_until_it_is_closed() {
    let (_dir, root) = directory();
    let (file, new) = (root.join("config"), root.join("config.new"));
    fs::write(&file, "1").unwrap();
    let mut watcher = following(std::slice::from_ref(&file));
    fs::remove_file(&file).unwrap();
    let mut first = fs::File::create(&file).unwrap();
    touched(&mut watcher, &file).await;
    first.write_all(b"2").unwrap();
    assert_eq!(touched(&mut watcher, &file).await, Touch::Written);
    let mut second = fs::File::create(&new).unwrap();
    fs::rename(&new, &file).unwrap();
    touched(&mut watcher, &file).await;
    second.write_all(b"3").unwrap();
    assert_eq!(touched(&mut watcher, &file).await, Touch::Written);
    drop(second);
    assert_eq!(touched(&mut watcher, &file).await, Touch::Settled);
}

#[tokio::test]
async fn other_permissions_of_the_directory_are_reported() {
    let (_dir, root) = directory();
    let (file, way) = (root.join("way/config"), root.join("way"));
    fs::create_dir(&way).unwrap();
    let mut watcher = following(std::slice::from_ref(&file));
    fs::set_permissions(&way, fs::Permissions::from_mode(0o750)).unwrap();
    assert_eq!(touched(&mut watcher, &way).await, Touch::Settled);
}

/// Another program writes, creates, renames and removes files beside the followed one.
#[tokio::test]
async fn events_of_other_files_are_read_a_limited_number_at_a_time() {
    let (_dir, root) = directory();
    let (file, other, renamed) = (root.join("config"), root.join("log"), root.join("log.1"));
    fs::write(&file, "1").unwrap();
    fs::write(&other, "1").unwrap();
    let mut watcher = following(std::slice::from_ref(&file));
    for _ in 0..EVENTS {
        fs::write(&other, "2").unwrap();
    }
    assert!(!is_readable(&watcher), "names are watched, and not the contents of other files");
    for _ in 0..EVENTS {
        fs::rename(&other, &renamed).unwrap();
        fs::rename(&renamed, &other).unwrap();
    }
    fs::write(&file, "2").unwrap();
    assert_eq!(watcher.waiting(), [], "the event of the file comes after many others");
    assert!(is_readable(&watcher), "those are left for later");
    touched(&mut watcher, &file).await;
}

#[tokio::test]
async fn events_that_the_kernel_dropped_are_known_to_be_lost() {
    let (_dir, root) = directory();
    let (file, other, renamed) = (root.join("config"), root.join("log"), root.join("log.1"));
    fs::write(&other, "1").unwrap();
    let mut watcher = following(std::slice::from_ref(&file));
    let most: usize =
        fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap().trim().parse().unwrap();
    for _ in 0..=most / 2 {
        fs::rename(&other, &renamed).unwrap();
        fs::rename(&renamed, &other).unwrap();
    }
    let lost = async {
        while !watcher.has_lost_events() {
            assert_eq!(watcher.touches().await, []);
        }
    };
    timeout(AGES, lost).await.expect("it is reported");
    assert!(!watcher.has_lost_events(), "once");
}

#[tokio::test]
async fn a_directory_that_appears_and_a_link_that_is_swapped_are_reported() {
    let (_dir, root) = directory();
    let (deep, mounted) = (root.join("credbroker/config.yaml"), root.join("mount/config"));
    for version in ["..1", "..2"] {
        fs::create_dir_all(root.join("mount").join(version)).unwrap();
        fs::write(root.join("mount").join(version).join("config"), version).unwrap();
    }
    symlink("..1", root.join("mount/..data")).unwrap();
    symlink("..data/config", &mounted).unwrap();
    let mut watcher = following(&[deep.clone(), mounted.clone()]);
    fs::create_dir(root.join("credbroker")).unwrap();
    touched(&mut watcher, &root.join("credbroker")).await;
    symlink("..2", root.join("mount/new")).unwrap();
    fs::rename(root.join("mount/new"), root.join("mount/..data")).unwrap();
    touched(&mut watcher, &root.join("mount/..data")).await;
    let added = Watches::add(watcher.instance().as_deref(), &[deep.clone(), mounted]);
    watcher.replace(added);
    fs::write(&deep, "1").unwrap();
    touched(&mut watcher, &deep).await;
    fs::write(root.join("mount/..2/config"), "3").unwrap();
    touched(&mut watcher, &root.join("mount/..2/config")).await;
}

/// As with a single file that is mounted into a container.
#[tokio::test]
async fn a_file_that_is_written_by_another_name_is_reported() {
    let (_dir, root) = directory();
    fs::create_dir(root.join("elsewhere")).unwrap();
    let (file, other) = (root.join("config"), root.join("elsewhere/config"));
    fs::write(&other, "1").unwrap();
    fs::hard_link(&other, &file).unwrap();
    let mut watcher = following(std::slice::from_ref(&file));
    fs::write(&other, "2").unwrap();
    touched(&mut watcher, &file).await;
}

#[tokio::test]
async fn without_inotify_nothing_is_reported_and_that_is_known() {
    let (_dir, root) = directory();
    let mut watcher = Watcher { inotify: None, watches: ByNumber::new(), has_lost_events: false };
    let added = Watches::add(watcher.instance().as_deref(), &[root.join("config")]);
    assert!(!added.is_complete);
    watcher.replace(added);
    fs::write(root.join("config"), "1").unwrap();
    assert!(futures_util::poll!(std::pin::pin!(watcher.touches())).is_pending());
}

#[test]
fn a_file_system_of_other_machines_is_known_by_its_number() {
    assert!(!is_remote(Path::new("/proc")) && !is_remote(Path::new("/absent")));
    assert!(REMOTE.split(' ').all(|number| u32::from_str_radix(number, 16).is_ok()));
}
