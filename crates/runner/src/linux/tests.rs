use super::*;

fn pid(id: i32) -> Pid {
    Pid::from_raw(id).unwrap()
}

fn child(id: i32, parent: i32) -> Process {
    let id = ProcessId { pid: pid(id), started: 7 };
    Process { id, parent: Pid::from_raw(parent), session: Some(id.pid) }
}

#[test]
fn descendants_are_found_over_generations() {
    let all = [child(1, 0), child(13, 12), child(10, 1), child(11, 10), child(12, 11), child(20, 1)];
    let below = |root| below(&all, pid(root)).map(|id| id.pid).collect::<Vec<_>>();
    assert_eq!(below(10), [11, 12, 13].map(pid));
    assert_eq!(below(13), []);
    assert_eq!(below(99), []);
}

#[test]
fn a_name_can_contain_anything() {
    let rest = "0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 815 0 0";
    let stat = [b"4711 (a) Z 1 2\n\xff) S 17 4711 42 ", rest.as_bytes()].concat();
    let id = ProcessId { pid: pid(4711), started: 815 };
    let expected = Process { id, parent: Pid::from_raw(17), session: Some(pid(42)) };
    assert_eq!(parsed(&stat), Some(expected));
    let of_the_kernel = parsed(format!("2 (kthreadd) S 0 0 0 {rest}").as_bytes()).unwrap();
    assert_eq!((of_the_kernel.parent, of_the_kernel.session), (None, None));
    let released = parsed(format!("2 (sh) X 0 -1 -1 {rest}").as_bytes()).unwrap();
    assert_eq!(released.session, None);
    for broken in [&b""[..], b"12", b"12 (a", b"12 (a) S", b"x (a) S 1 1 1", b"2 (kthreadd) S 0 0 0 0"] {
        assert_eq!(parsed(broken), None);
    }
}

#[test]
fn a_signal_goes_to_no_other_process_with_the_same_number() {
    #[expect(clippy::disallowed_methods, reason = "a process that must not get a signal, for the test")]
    let mut child = std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
    let found = process(Pid::from_child(&child)).unwrap().id;
    ProcessId { started: found.started - 1, ..found }.signal(Signal::KILL);
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success(), "it has read to the end");
    found.signal(Signal::KILL); // it is reaped: nothing gets it
}

#[test]
fn the_sockets_of_a_process_are_seen() {
    let parent = std::os::unix::process::parent_id();
    let (socket, _other) = std::os::unix::net::UnixStream::pair().unwrap();
    assert!(holds_socket(getpid()), "{socket:?}");
    #[expect(clippy::disallowed_methods, reason = "a process with other files, for the test")]
    let mut command = std::process::Command::new("cat");
    let mut child =
        command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped()).spawn().unwrap();
    assert!(!holds_socket(Pid::from_child(&child)));
    assert!(!hold_socket(&[child.id()]) && hold_socket(&[parent]), "this process is below its parent");
    drop(child.stdin.take());
    child.wait().unwrap();
}

#[test]
fn this_process_descends_from_its_parent_and_not_the_other_way_round() {
    let (own, parent) = (std::process::id(), std::os::unix::process::parent_id());
    assert_eq!(ancestor(own, &[own]), Some(own));
    assert_eq!(ancestor(own, &[0x7fff_ffff, parent]), Some(parent));
    for (pid, ancestors) in [(parent, &[own][..]), (own, &[]), (0, &[parent]), (u32::MAX, &[parent])] {
        assert_eq!(ancestor(pid, ancestors), None, "{pid}");
    }
}

#[test]
fn a_grandchild_is_found_by_its_parents_alone() {
    use std::io::BufRead as _;
    #[expect(clippy::disallowed_methods, reason = "processes to look at")]
    let mut shell = std::process::Command::new("sh");
    let shell = shell.args(["-c", "sleep 60 & echo $!; wait"]).stdout(std::process::Stdio::piped());
    let mut shell = shell.spawn().unwrap();
    let mut line = String::new();
    io::BufReader::new(shell.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let (own, grandchild) = (std::process::id(), line.trim().parse::<u32>().unwrap());
    let found = [own, u32::MAX].map(|root| ancestor(grandchild, &[root]));
    // Before the look at the result: a test that fails leaves no process.
    kill_process(pid(grandchild.cast_signed()), Signal::KILL).unwrap();
    shell.wait().unwrap();
    assert_eq!(found, [Some(own), None]);
}
