use std::{collections::BTreeMap, future::pending};

use prost::Message as _;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::*;
use credbroker_plugin::{
    Command, Globs, PluginFile, PluginKey, Provider, ProviderRef,
    access::{Facts, Grant, Peers, Policy, Principal, Process, Rule},
    testing::provider as test_provider,
};
use credbroker_uds_server::WatchSlots;

#[test]
fn attending_is_for_the_brokers_own_user_and_for_the_verb_login() {
    let own = geteuid().as_raw();
    for (uid, verbs, may) in [
        (own, &[Verb::Get][..], true),
        (own + 1, &[Verb::Get, Verb::Watch, Verb::Admin], false),
        (own + 1, &[Verb::Get, Verb::Login], true),
    ] {
        let peers = Peers { uids: vec![uid], ..Peers::default() };
        let verbs = verbs.to_vec();
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
fn lines_and_how_long_the_run_may_take_are_sent() {
    let events = |are_shown| -> Vec<_> {
        let news = AttendanceNews { lines: vec!["code".into()], time_left: Some(Duration::from_secs(3)) };
        events(news, are_shown).collect()
    };
    let time_left = Event::TimeLeft(prost_types::Duration { seconds: 3, nanos: 0 });
    let output = Event::Output(Output { stderr_lines: vec!["code".into()] });
    assert_eq!(events(true), [output, time_left.clone()]);
    assert_eq!(events(false), [time_left], "the plugin writes to the terminal of the caller");
}

fn own() -> u32 {
    geteuid().as_raw()
}

/// Whether a caller with these properties may lend its terminal to a provider of `mode`, for which there are rules for
/// `uids`.
fn lends((uid, pid, origin): (u32, Option<i32>, Origin), mode: Interactive, uids: &[u32]) -> bool {
    let facts = Facts { origin, ..Facts::default() };
    let process = Process::new(move || facts);
    let principal = Principal { uid: Some(uid), process, ..Principal::default() };
    let rule = |uid: &u32| {
        let peers = Peers { uids: vec![*uid], ..Peers::default() };
        let verbs = [Verb::Get].into_iter().collect();
        Rule {
            name: "r".into(),
            peers,
            allow: Grant { providers: Globs::new(["p"]), verbs, ..Grant::default() },
        }
    };
    let policies = watch::Sender::new(Arc::new(Policy::new(uids.iter().map(rule)))).subscribe();
    let access = Access::new(Peer { listener: 0, uid, gid: uid, pid }, principal, policies);
    let command = Command::Path("/fake".into());
    let spec = PluginSpec {
        key: PluginKey([0; 32]),
        provider: Arc::new(Provider { interactive: mode, ..test_provider("p", command.clone()) }),
        file: Arc::new(PluginFile::new(command, None)),
        cluster: None,
        caller_env: BTreeMap::new(),
        target: None,
    };
    lender(&access, &spec).is_some()
}

#[test]
fn only_a_process_of_the_brokers_user_beside_the_broker_lends_its_terminal() {
    let beside = Origin::Beside;
    for (caller, mode, uids, expected) in [
        ((own(), Some(7), beside), Interactive::Always, &[][..], true),
        ((own(), Some(7), beside), Interactive::IfAvailable, &[], true),
        ((own(), Some(7), beside), Interactive::Never, &[], false),
        ((own() + 1, Some(7), beside), Interactive::Always, &[], false),
        ((own(), Some(7), Origin::Elsewhere), Interactive::Always, &[], false),
        ((own(), None, beside), Interactive::Always, &[], false),
        ((own(), Some(7), beside), Interactive::Always, &[own()], true),
        ((own(), Some(7), beside), Interactive::Always, &[own(), own() + 1], false),
    ] {
        assert_eq!(lends(caller, mode, uids), expected, "{caller:?} {mode:?} {uids:?}");
    }
}

fn offer() -> (Offer, oneshot::Receiver<Deposit>) {
    let (deposit, deposited) = oneshot::channel();
    let environment = [("A".into(), "b=c".into())].into();
    let command = PluginCommand { program: "/bin/pw".into(), args: vec!["-x".into()], environment };
    (Offer { command, deposit }, deposited)
}

#[test]
fn only_the_holder_brings_the_output_and_only_while_it_holds_the_lease() {
    let leases = Leases::default();
    let peer = |pid| Peer { listener: 0, uid: 1, gid: 1, pid: Some(pid) };
    let (offer, mut deposited) = offer();
    let (lease, command) = leases.grant(&peer(7), offer);
    assert_eq!(command.command, [&b"/bin/pw"[..], b"-x"]);
    assert_eq!(command.environment, [b"A=b=c"]);
    let output =
        |lease_id| v1alpha1::DepositOutputRequest { lease_id, stdout: b"out".to_vec(), exit_code: 0 };
    assert!(leases.deposit(&peer(8), output(command.id)).is_err(), "another process");
    assert!(leases.deposit(&peer(7), output(command.id + 1)).is_err(), "another lease");
    leases.deposit(&peer(7), output(command.id)).unwrap();
    assert_eq!(*deposited.try_recv().unwrap().stdout, b"out");
    assert!(leases.deposit(&peer(7), output(command.id)).is_err(), "a second time");
    drop(lease);

    let (offer, mut deposited) = self::offer();
    let (lease, command) = leases.grant(&peer(7), offer);
    drop(lease);
    assert!(deposited.try_recv().is_err() && leases.lock().held.is_empty(), "the run is free immediately");
    assert!(leases.deposit(&peer(7), output(command.id)).is_err());
}

#[tokio::test]
async fn what_is_new_with_an_offer_is_not_shown_to_its_lender() {
    let (lender, offered) = oneshot::channel();
    let attendant = Arc::<Attendant>::default();
    let mut stream = AttendStream {
        answer: Some(Box::pin(pending())),
        reader: attendant.read(),
        waiting: VecDeque::new(),
        offered: Some(offered),
        lease: None,
        leases: Leases::default(),
        peer: Peer { listener: 0, uid: 1, gid: 1, pid: Some(7) },
        _slot: WatchSlots::new(CancellationToken::new()).acquire().unwrap(),
    };
    let (offer, _deposited) = offer();
    lender.send(offer).unwrap();
    stream.queue(AttendanceNews { lines: vec!["in a terminal".into()], time_left: None });
    let next = stream.next().await.unwrap().unwrap();
    let event = v1alpha1::AttendCredentialResponse::decode(&next[5..]).unwrap().event;
    assert!(matches!(event, Some(Event::Lease(_))), "{event:?}");
    assert!(stream.waiting.is_empty());
}
