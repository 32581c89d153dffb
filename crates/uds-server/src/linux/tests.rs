use super::*;

fn own() -> i32 {
    getpid().as_raw_nonzero().get()
}

#[test]
fn users_and_groups_are_the_effective_and_the_supplementary_ones() {
    let text = "Name:\tx\nGroups:\nUmask:\t0022\nUid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\nGroups:\t9 10 \n";
    assert_eq!(parse(text), (Some((2, 6)), vec![]), "the first field counts");
    let text = "Name:\tGroups: 1\nUid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\nGroups:\t9 10 \n";
    assert_eq!(parse(text), (Some((2, 6)), vec![9, 10]));
    assert_eq!(parse("Uid:\t1\n"), (None, vec![]));
    let ids = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    assert_eq!(status(own()).0, Some(ids));
    assert_eq!(status(i32::MAX), (None, vec![]));
}

#[test]
fn the_executable_is_that_of_the_process() {
    assert_eq!(executable(own()).as_deref(), std::env::current_exe().ok().as_deref());
    assert_eq!(executable(i32::MAX), None);
}

#[tokio::test]
async fn a_pin_knows_whether_the_process_runs() {
    let (ours, _theirs) = UnixStream::pair().unwrap();
    assert!(ProcessPin::of(&ours, own()).unwrap().is_alive());
    #[expect(clippy::disallowed_methods, reason = "a process that ends, for the test")]
    let mut child = std::process::Command::new("true").spawn().unwrap();
    let pid = Pid::from_raw(child.id().cast_signed()).unwrap();
    let pin = ProcessPin(pidfd_open(pid, PidfdFlags::empty()).unwrap());
    child.wait().unwrap();
    assert!(!pin.is_alive());
}

#[test]
fn a_process_with_the_same_namespaces_shares_them() {
    let home = Namespaces::of_this_process().unwrap();
    assert_eq!(home.shared_with(own()), [true; 2]);
    assert_eq!(home.shared_with(i32::MAX), [false; 2], "it has ended");
}

#[test]
fn each_other_namespace_is_seen_and_one_that_cannot_be_read_is_not_shared() {
    let Namespaces([mounts, processes]) = Namespaces::of_this_process().unwrap();
    for other in [Some(PathBuf::from("mnt:[1]")), None] {
        let home = Namespaces([other.clone(), processes.clone()]);
        assert_eq!(home.shared_with(own()), [false, true]);
        let home = Namespaces([mounts.clone(), other]);
        assert_eq!(home.shared_with(own()), [true, false]);
    }
    assert_eq!(Namespaces([None, None]).shared_with(i32::MAX), [false; 2], "neither can be read");
}

#[test]
fn only_the_map_of_the_first_namespace_maps_every_user() {
    let table = [
        ("         0          0 4294967295\n", true),
        ("0 0 65534\n65534 65534 4294901761\n", false),
        ("0 0 65536\n", false),
        ("0 100000 65536\n", false),
        ("1000 1000 1\n", false),
        ("0 1000 1\n1 100000 4294967294\n", false),
        ("0 0 65534\n65535 65535 4294901760\n", false),
        ("", false),
        ("all\n", false),
        ("0 0 4294967295 1\n", false),
    ];
    for (map, expected) in table {
        assert_eq!(maps_all(map), expected, "{map:?}");
    }
}
