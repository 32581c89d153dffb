use rustix::process::getpid;

use super::*;

#[tokio::test]
async fn the_kernel_says_who_it_is() {
    let (ours, _theirs) = UnixStream::pair().unwrap();
    let PeerIdentity { peer, uid, gid, is_owner, process } = Identities::new().of(&ours, 1).unwrap();
    let own = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
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
    let mut identities = Identities::new();
    identities.home = Arc::new(Home::blind());
    let identity = identities.of(&ours, 0).unwrap();
    assert!(identity.uid.is_some() && identity.process.is_none());
}
