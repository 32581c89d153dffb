use prost::Message as _;

use tokio::sync::watch;

use super::*;
use credbroker_plugin::{
    Globs, ProviderRef,
    access::{Grant, Peers, Policy, Rule},
};

#[test]
fn attending_is_for_the_brokers_own_user_and_for_the_verb_login() {
    let own = geteuid().as_raw();
    for (uid, verbs, may) in [
        (own, &[Verb::Get][..], true),
        (own + 1, &[Verb::Get, Verb::Watch, Verb::Admin], false),
        (own + 1, &[Verb::Get, Verb::Login], true),
    ] {
        let peers = Peers { uids: vec![uid], ..Peers::default() };
        let verbs = verbs.iter().copied().collect();
        let allow = Grant { providers: Globs::new(["p"]), verbs, ..Grant::default() };
        let policy = Policy::new([Rule { name: "r".into(), peers, allow }]);
        let access = Access::of_uid(uid, watch::Sender::new(Arc::new(policy)).subscribe());
        let source = |name: &str| Source::Provider(ProviderRef { name: name.into(), definition: None });
        let checked = check(&access, &source("p"), "p", None);
        assert_eq!(checked.is_ok(), may, "{uid}");
        let denied = check(&access, &source("q"), "q", None);
        assert_eq!(denied.is_ok(), uid == own, "{uid}: `get` is checked before");
    }
}

#[test]
fn a_message_has_lines_and_how_long_the_run_may_take() {
    let news = AttendanceNews { lines: vec!["code".into()], time_left: Some(Duration::from_secs(3)) };
    let sent = preencoded::message(&lines(news)).unwrap();
    let sent = pb::AttendCredentialResponse::decode(sent).unwrap();
    assert_eq!((sent.stderr_lines, sent.time_left.unwrap().seconds), (vec!["code".to_owned()], 3));
    assert!(sent.credential.is_none());
}
