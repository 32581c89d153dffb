use super::*;

#[tokio::test]
async fn the_kernel_says_who_it_is() {
    let (ours, _theirs) = UnixStream::pair().unwrap();
    let identity =
        Identities::new(vec!["other".into(), "apps".into()], LiveRuns::default()).of(&ours, 1).unwrap();
    let PeerIdentity { peer, principal, run } = identity;
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let facts = principal.process.facts();
    assert_eq!((peer.uid, peer.gid, facts.origin), (uid, gid, Origin::Beside));
    assert_eq!(peer.pid, Some(getpid().as_raw_nonzero().get()));
    assert_eq!((principal.uid, principal.gid, &*principal.listener), (Some(uid), Some(gid), "apps"));
    assert_eq!(facts.executable.as_deref(), std::env::current_exe().ok().as_deref());
    let groups: Vec<_> =
        rustix::process::getgroups().unwrap().into_iter().map(rustix::fs::Gid::as_raw).collect();
    assert_eq!(facts.groups.to_vec(), groups);
    assert!(principal.is_owner && run.is_none());
}

#[tokio::test]
async fn without_proc_only_uid_and_gid_are_known() {
    let (ours, _theirs) = UnixStream::pair().unwrap();
    let mut identities = Identities::new(Vec::new(), LiveRuns::default());
    identities.home = Arc::new(Home::blind());
    let PeerIdentity { principal, .. } = identities.of(&ours, 0).unwrap();
    let facts = principal.process.facts();
    assert_eq!(facts.origin, Origin::Elsewhere);
    assert!(principal.uid.is_some() && facts.groups.is_empty() && facts.executable.is_none());
}
