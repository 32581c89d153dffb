use super::*;
use credbroker_plugin::{
    Globs,
    access::{CallTarget, Grant, Peers, Rule},
};

impl Access {
    /// That of a user who is not the broker's.
    pub(crate) fn of_uid(uid: u32, policies: Policies) -> Arc<Self> {
        let peer = Peer { listener: 0, uid, gid: uid, pid: None };
        Arc::new(Self::new(peer, Principal { uid: Some(uid), ..Principal::default() }, policies))
    }

    /// That of the broker's own user without rules.
    pub(crate) fn of_the_owner() -> Arc<Self> {
        let peer = Peer { listener: 0, uid: 1000, gid: 1000, pid: None };
        let principal = Principal { uid: Some(1000), is_owner: true, ..Principal::default() };
        let policies = watch::Sender::new(Arc::new(Policy::new([]))).subscribe();
        Arc::new(Self::new(peer, principal, policies))
    }
}

fn rules(uid: u32, provider: &str) -> Arc<Policy> {
    let peers = Peers { uids: vec![uid], ..Peers::default() };
    let verbs = [Verb::Get].into_iter().collect();
    let allow = Grant { providers: Globs::new([provider]), verbs, ..Grant::default() };
    Arc::new(Policy::new([Rule { name: "r".into(), peers, allow }]))
}

fn access(policies: Policies) -> Access {
    let peer = Peer { listener: 0, uid: 7, gid: 7, pid: None };
    Access::new(peer, Principal { uid: Some(7), ..Principal::default() }, policies)
}

#[test]
fn rights_follow_the_policy_and_are_computed_once_for_each() {
    let sender = watch::Sender::new(Arc::new(Policy::new([])));
    let access = access(sender.subscribe());
    assert!(access.rights().is_empty());
    assert!(access.denied().message().contains(status::STRANGER));
    sender.send_replace(rules(7, "p"));
    let rights = access.rights();
    assert!(rights.allows(Verb::Get, CallTarget::Provider("p")));
    assert!(Arc::ptr_eq(&rights, &access.rights()), "nothing is computed for a call");
    assert!(access.need(Verb::Get).is_ok() && access.need(Verb::Admin).is_err());
    sender.send_replace(rules(8, "p"));
    assert!(access.rights().is_empty());
    assert!(access.denied().message().contains(status::UNLISTED));
}

#[test]
fn a_permit_is_current_until_the_policy_changes() {
    let sender = watch::Sender::new(rules(7, "p"));
    let access = access(sender.subscribe());
    let permit = access.permit(Verb::Get);
    assert!(access.is_current(&permit));
    sender.send_replace(rules(7, "p"));
    assert!(!access.is_current(&permit));
    assert!(access.is_current(&Permit::default()), "that of the broker itself");
}

#[test]
fn a_watch_learns_of_each_change_after_the_rights_that_it_began_with() {
    let sender = watch::Sender::new(rules(7, "p"));
    let access = access(sender.subscribe());
    sender.send_replace(rules(7, "q"));
    assert!(access.changes().has_changed().unwrap(), "the rights are those of the first policy");
    access.rights();
    let changes = access.changes();
    assert!(!changes.has_changed().unwrap());
    sender.send_replace(rules(8, "q"));
    assert!(changes.has_changed().unwrap());
}
