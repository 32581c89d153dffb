use rustix::process::getpid;

use super::*;

#[tokio::test]
async fn the_kernel_says_who_it_is() {
    let (ours, _theirs) = UnixStream::pair().unwrap();
    let PeerIdentity { peer, uid, gid, is_owner, process } = Identities::new().of(&ours, 1).unwrap();
    let own = (geteuid().as_raw(), rustix::process::getegid().as_raw());
    let process = process.unwrap();
    let facts = process.facts();
    assert_eq!((peer.uid, peer.gid), own);
    assert_eq!((uid, gid), (Some(own.0), Some(own.1)));
    assert!(facts.is_beside && is_owner && process.is_alive() && !process.is_urgent());
    assert_eq!(peer.pid, Some(getpid().as_raw_nonzero().get()));
    assert_eq!(facts.executable.as_deref(), std::env::current_exe().ok().as_deref());
    let groups: Vec<_> =
        rustix::process::getgroups().unwrap().into_iter().map(rustix::fs::Gid::as_raw).collect();
    assert_eq!(facts.groups.to_vec(), groups);
}

#[tokio::test]
async fn without_proc_only_uid_and_gid_are_known() {
    let (ours, _theirs) = UnixStream::pair().unwrap();
    let identities = Identities { home: None, own: geteuid().as_raw(), overflow: [None; 2] };
    let identity = Arc::new(identities).of(&ours, 0).unwrap();
    assert!(identity.uid.is_some() && identity.process.is_none());
}

#[test]
fn a_number_for_everyone_identifies_no_user_and_a_mapped_one_does() {
    let in_namespace = Identities { home: None, own: 65_534, overflow: [Some(65_534), Some(65_533)] };
    assert_eq!(in_namespace.user(65_534), None);
    assert_eq!((in_namespace.user(0), in_namespace.user(65_533)), (Some(0), Some(65_533)));
    assert_eq!((in_namespace.group(65_533), in_namespace.group(65_534)), (None, Some(65_534)));
    assert!(!in_namespace.identify_own());
    let host = Identities { home: None, own: 65_534, overflow: [None; 2] };
    assert_eq!((host.user(65_534), host.group(65_534)), (Some(65_534), Some(65_534)));
    assert!(host.identify_own());
    for users in [&in_namespace, &host] {
        assert_eq!(
            (users.user(u32::MAX), users.group(u32::MAX)),
            (None, None),
            "it identifies no user anywhere"
        );
        assert!(users.is_owner(0) && users.is_owner(65_534) && !users.is_owner(1000));
    }
}
