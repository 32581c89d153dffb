use super::*;
use crate::tests::{HEAD, Home, stanza};

fn home(listen: &str) -> Home {
    Home::new(&format!("{HEAD}listen: {listen}\nproviders:\n- name: p\n  {}\n", stanza("x")))
}

#[test]
fn there_is_one_listener_or_several_with_names() {
    let names = |listen: &str| {
        let listeners = home(listen).load().unwrap().config.listen;
        listeners.into_iter().map(|listener| (listener.name, listener.mode)).collect::<Vec<_>>()
    };
    let listener = |name: &str, mode| (name.to_owned(), mode);
    assert_eq!(names("{}"), [listener("default", 0o600)]);
    assert_eq!(names("{name: apps, mode: \"0660\"}"), [listener("apps", 0o660)]);
    assert_eq!(names("[{mode: \"0660\"}]"), [listener("default", 0o660)]);
    assert_eq!(
        names("[{socket: /a/s}, {name: apps, socket: /b/s, mode: \"0666\"}]"),
        [listener("default", 0o600), listener("apps", 0o666)]
    );
}

#[test]
fn listeners_differ_in_name_and_socket() {
    let problems = |listen: &str| home(listen).problems();
    insta::assert_snapshot!(problems("[]"), @"~/.config/credbroker/config.yaml:3:9: listen: must not be an empty list");
    insta::assert_snapshot!(problems("[{socket: /a/s}, {socket: /b/s}]"), @"~/.config/credbroker/config.yaml:3:26: listen[1]: another listener has the name `default`; set a different `name`");
    insta::assert_snapshot!(problems("[{name: a}, {name: b}]"), @"~/.config/credbroker/config.yaml:3:21: listen[1]: listener `a` has the same socket; set another `socket`");
    insta::assert_snapshot!(problems("[{name: a, socket: s}, 1]"), @r"
~/.config/credbroker/config.yaml:3:28: listen[0].socket: must be an absolute path, like `/run/credbroker/credbroker.sock`
~/.config/credbroker/config.yaml:3:32: listen[1]: expected a map, found a number
");
}

#[test]
fn sockets_in_one_directory_and_an_unknown_group_are_warnings() {
    insta::assert_snapshot!(home("[{socket: /a/s}, {name: b, socket: /a/t}]").warnings(), @"~/.config/credbroker/config.yaml:3:26: listen[1]: the socket is in the same directory as the socket of listener `default`, so a container that mounts the directory can reach both; use a separate directory");
    insta::assert_snapshot!(home("{group: no such}").warnings(), @"~/.config/credbroker/config.yaml:3:17: listen.group: group `no such` not found on this machine; see `getent group`");
    assert_eq!(home("{group: \"12345\"}").warnings(), "");
}

#[test]
fn an_address_that_other_hosts_can_reach_needs_an_exposure() {
    let home = |metrics: &str| {
        Home::new(&format!("{HEAD}metrics: {{{metrics}}}\nproviders:\n- name: p\n  {}\n", stanza("x")))
    };
    let pod = "exposure: Pod, providerNames: true";
    for listen in ["0.0.0.0:9464", "[::]:0"] {
        let local = home(&format!("listen: \"{listen}\"")).problems();
        assert!(
            local.contains("metrics.listen: must not be an address that other hosts can connect to"),
            "{local}"
        );
        assert_eq!(home(&format!("listen: \"{listen}\", exposure: Local")).problems(), local);
        let metrics = home(&format!("listen: \"{listen}\", {pod}")).load().unwrap().config.metrics.unwrap();
        assert_eq!(metrics.address, MetricsAddress::Pod(listen.parse().unwrap()));
        assert_eq!(home(&format!("listen: \"{listen}\", {pod}")).warnings(), "");
    }
    insta::assert_snapshot!(home("listen: \"[::]:9464\"").problems(), @"~/.config/credbroker/config.yaml:3:19: metrics.listen: must not be an address that other hosts can connect to: the answers are not encrypted; listen on a loopback address, like `127.0.0.1:9464`, or allow it with `exposure: Pod`");
    insta::assert_snapshot!(home(&format!("listen: \"[::1]:9464\", {pod}")).problems(), @"~/.config/credbroker/config.yaml:3:19: metrics.listen: must be `0.0.0.0:PORT` or `[::]:PORT` with `exposure: Pod`: other hosts cannot connect to this one; change it, or remove `exposure`");
    insta::assert_snapshot!(home(&format!("listen: unix:///run/m/s, {pod}")).problems(), @"~/.config/credbroker/config.yaml:3:19: metrics.listen: must be `0.0.0.0:PORT` or `[::]:PORT` with `exposure: Pod`: other hosts cannot connect to this one; change it, or remove `exposure`");
    insta::assert_snapshot!(home(&format!("listen: \"10.0.0.1:9464\", {pod}")).problems(), @"~/.config/credbroker/config.yaml:3:19: metrics.listen: must be a loopback address with a port, like `127.0.0.1:9464`, or `unix:///absolute/path`, or with `exposure: Pod` `0.0.0.0:9464` or `[::]:9464`: the answers are not encrypted");
    insta::assert_snapshot!(home("listen: \"[::]:9464\", exposure: Pod").warnings(), @"~/.config/credbroker/config.yaml:3:19: metrics.listen: other hosts can connect, so the answers contain no provider names, and alerts about providers cannot fire; set `providerNames: true`, or `false` to leave them out");
}

#[test]
fn only_loopback_addresses_all_addresses_and_absolute_paths_are_valid() {
    for text in ["127.0.0.1:9464", "127.1.2.3:0", "[::1]:9464"] {
        assert_eq!(address(text), Some(MetricsAddress::Loopback(text.parse().unwrap())), "{text}");
    }
    for text in ["0.0.0.0:9464", "[::]:9464"] {
        assert_eq!(address(text), Some(MetricsAddress::Pod(text.parse().unwrap())), "{text}");
    }
    assert_eq!(address("unix:///run/m/s"), Some(MetricsAddress::Unix("/run/m/s".into())));
    for text in [
        "",
        "9464",
        ":9464",
        "0.0.0.0",
        "[::]",
        "10.0.0.1:9464",
        "[fe80::1]:9464",
        "localhost:9464",
        "127.0.0.1",
    ] {
        assert_eq!(address(text), None, "{text}");
    }
    for text in ["unix://", "unix://relative", "unix:/run/s", "unix:///", "/run/s"] {
        assert_eq!(address(text), None, "{text}");
    }
}
