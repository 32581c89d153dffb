use super::*;

fn pid(id: i32) -> Pid {
    Pid::from_raw(id).unwrap()
}

fn child(id: i32, parent: i32) -> TreeProcess {
    TreeProcess { pid: pid(id), parent: Pid::from_raw(parent), session: Some(pid(id)) }
}

#[test]
fn descendants_are_found_over_generations() {
    let all = [child(1, 0), child(13, 12), child(10, 1), child(11, 10), child(12, 11), child(20, 1)];
    assert_eq!(below(&all, pid(10)), [11, 12, 13].map(pid));
    assert_eq!(below(&all, pid(13)), []);
    assert_eq!(below(&all, pid(99)), []);
}

#[test]
fn a_name_can_contain_anything() {
    let stat = b"4711 (a) Z 1 2\n\xff) S 17 4711 42 0 -1 4194304";
    let expected = TreeProcess { pid: pid(4711), parent: Pid::from_raw(17), session: Some(pid(42)) };
    assert_eq!(parsed(stat), Some(expected));
    let of_the_kernel = parsed(b"2 (kthreadd) S 0 0 0 0").unwrap();
    assert_eq!((of_the_kernel.parent, of_the_kernel.session), (None, None));
    for broken in [&b""[..], b"12", b"12 (a", b"12 (a) S", b"x (a) S 1 1 1"] {
        assert_eq!(parsed(broken), None);
    }
}

#[test]
fn this_process_descends_from_its_parent_and_not_the_other_way_round() {
    let (own, parent) = (std::process::id(), std::os::unix::process::parent_id());
    assert!(is_descendant(own, &[own]) && is_descendant(own, &[0x7fff_ffff, parent]));
    assert!(!is_descendant(parent, &[own]) && !is_descendant(own, &[]));
    assert!(!is_descendant(0, &[parent]) && !is_descendant(u32::MAX, &[parent]));
}
