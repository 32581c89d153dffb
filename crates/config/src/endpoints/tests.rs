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
    insta::assert_snapshot!(home("[{socket: /a/s}, {name: b, socket: /a/t}]").warnings(), @"~/.config/credbroker/config.yaml:3:26: listen[1]: the socket is in the same directory as that of listener `default`, so a container that mounts the directory can reach both; use a separate directory");
    insta::assert_snapshot!(home("{group: no such}").warnings(), @"~/.config/credbroker/config.yaml:3:17: listen.group: group `no such` not found on this machine; see `getent group`");
    assert_eq!(home("{group: \"12345\"}").warnings(), "");
}

#[test]
fn only_loopback_addresses_and_absolute_paths_are_valid() {
    for text in ["127.0.0.1:9464", "127.1.2.3:0", "[::1]:9464"] {
        assert_eq!(address(text), Some(MetricsAddress::Loopback(text.parse().unwrap())), "{text}");
    }
    assert_eq!(address("unix:///run/m/s"), Some(MetricsAddress::Unix("/run/m/s".into())));
    for text in
        ["", "9464", ":9464", "0.0.0.0:9464", "[::]:9464", "10.0.0.1:9464", "localhost:9464", "127.0.0.1"]
    {
        assert_eq!(address(text), None, "{text}");
    }
    for text in ["unix://", "unix://relative", "unix:/run/s", "unix:///", "/run/s"] {
        assert_eq!(address(text), None, "{text}");
    }
}
