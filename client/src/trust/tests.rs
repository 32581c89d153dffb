use super::*;

#[test]
fn a_private_directory_belongs_to_this_user_or_root_and_is_not_writable_by_others() {
    let (own, stranger) = (1000, 1001);
    for (owner, mode, expected) in [
        (own, 0o700, true),
        (ROOT, 0o755, true),
        (own, 0o750, true),
        (stranger, 0o700, false),
        (own, 0o770, false),
        (ROOT, 0o1777, false),
        (own, 0o702, false),
    ] {
        assert_eq!(is_private(owner, mode, || own), expected, "{owner} {mode:o}");
    }
}

#[test]
fn a_server_must_run_as_this_user_root_or_the_owner_of_the_directory() {
    let (own, owner, stranger) = (1000, 1001, 1002);
    let check = |uid, expected| check_server(uid, expected, owner, || own, || true);
    for uid in [ROOT, own, owner] {
        assert_eq!(check(uid, None), Ok(()));
    }
    assert_eq!(check(stranger, None), Err(Distrust::Server { uid: stranger }));
}

#[test]
fn an_expected_server_is_the_only_one() {
    let (own, owner, expected) = (1000, 1001, 1002);
    let check = |uid| check_server(uid, Some(expected), owner, || own, || true);
    assert_eq!(check(expected), Ok(()));
    for uid in [ROOT, own, owner] {
        assert_eq!(check(uid), Err(Distrust::OtherServer { uid, expected }));
    }
}

#[test]
fn a_server_that_the_kernel_cannot_map_is_not_identified_by_its_number() {
    for (uid, maps_all, is_identified) in
        [(OVERFLOW, true, true), (OVERFLOW, false, false), (u32::MAX, true, false), (1000, false, true)]
    {
        for expected in [None, Some(uid)] {
            let checked = check_server(uid, expected, uid, || uid, || maps_all);
            let refusal = Err(Distrust::UnmappedServer { uid });
            assert_eq!(checked, if is_identified { Ok(()) } else { refusal }, "{uid} {maps_all}");
        }
    }
}
