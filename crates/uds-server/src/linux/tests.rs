use super::*;

fn own() -> i32 {
    getpid().as_raw_nonzero().get()
}

#[test]
fn users_and_groups_are_the_effective_and_the_supplementary_ones() {
    let text = "Name:\tx\nGroups:\nUmask:\t0022\nUid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\nGroups:\t9 10 \n";
    assert_eq!(Status::parse(text), Status { owner: Some((2, 6)), groups: vec![] }, "the first field counts");
    let text = "Name:\tGroups: 1\nUid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\nGroups:\t9 10 \n";
    assert_eq!(Status::parse(text), Status { owner: Some((2, 6)), groups: vec![9, 10] });
    assert_eq!(Status::parse("Uid:\t1\n"), Status::default());
    let status = Status::of(own()).unwrap();
    let ids = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    assert_eq!(status.owner, Some(ids));
    assert!(Status::of(i32::MAX).is_err());
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
    let home = Home::of_this_process();
    assert_eq!(home.shared(own()), SharedWithBroker { mounts: true, processes: true });
    assert_eq!(home.shared(i32::MAX), SharedWithBroker::default(), "it has ended");
    assert_eq!(Home::blind().shared(own()), SharedWithBroker::default());
}

#[test]
fn each_other_namespace_is_seen_and_one_that_cannot_be_read_is_not_shared() {
    for other in [Some(PathBuf::from("mnt:[1]")), None] {
        let home = Home(Some(Namespaces { mount: other.clone(), ..Namespaces::of(own()) }));
        assert_eq!(home.shared(own()), SharedWithBroker { mounts: false, processes: true });
        let home = Home(Some(Namespaces { pid: other, ..Namespaces::of(own()) }));
        assert_eq!(home.shared(own()), SharedWithBroker { mounts: true, processes: false });
    }
    let home = Home(Some(Namespaces::default()));
    assert_eq!(home.shared(i32::MAX), SharedWithBroker::default(), "neither can be read");
}
