use super::*;
use crate::tests::{HEAD, Home, stanza};

fn home(proxy: &str) -> Home {
    Home::new(&format!("{HEAD}proxy: {proxy}\nproviders:\n- name: p\n  {}\n", stanza("x")))
}

fn section(proxy: &str) -> ProxySection {
    home(proxy).load().unwrap().config.proxy.unwrap()
}

#[test]
fn there_is_a_loopback_port_unless_only_sockets_are_configured() {
    assert_eq!(section("{}"), ProxySection::default());
    assert_eq!(section("{tls: {}}"), ProxySection::default());
    let sockets = section("{listen: {}}");
    assert_eq!((sockets.tls, sockets.sockets.len()), (None, 1));
    assert_eq!(sockets.sockets.first().map(|socket| socket.name.as_str()), Some("proxy"));
    let both = section(
        "{listen: [{name: a, socket: /a/s}, {name: b, socket: /b/s}], tls: {listen: \"[::1]:0\", handleLifetime: 24h, requireUid: false}}",
    );
    assert_eq!(both.sockets.len(), 2);
    let expected = ProxyTls {
        listen: "[::1]:0".parse().unwrap(),
        handle_lifetime: Duration::from_secs(24 * 3600),
        require_uid: false,
    };
    assert_eq!(both.tls, Some(expected));
}

#[test]
fn a_separate_proxy_has_its_own_metrics_and_audit_file() {
    let both = section("{metrics: {listen: \"127.0.0.1:9\"}, audit: {file: /a/b}}");
    assert_eq!(both.metrics, Some(MetricsAddress::Loopback("127.0.0.1:9".parse().unwrap())));
    assert_eq!(both.audit.as_deref(), Some("/a/b".as_ref()));
    let problems = home("{metrics: {listen: \"0.0.0.0:9\"}, audit: {file: b}}").problems();
    assert!(problems.contains("proxy.metrics.listen: must not be an address that other hosts"), "{problems}");
    assert!(problems.contains("proxy.audit.file: must be an absolute path"), "{problems}");
}

#[test]
fn only_addresses_that_the_certificate_names_are_valid() {
    for text in ["127.0.0.1:9465", "127.0.0.1:0", "[::1]:1"] {
        assert!(loopback(text).is_some(), "{text}");
    }
    for text in [
        "",
        "9465",
        "127.0.0.1",
        "127.0.0.2:1",
        "0.0.0.0:1",
        "[::]:1",
        "10.0.0.1:1",
        "localhost:1",
        "[::ffff:127.0.0.1]:1",
        "[::1%1]:1",
    ] {
        assert_eq!(loopback(text), None, "{text}");
    }
    let problems = home("{tls: {listen: \"0.0.0.0:1\"}}").problems();
    assert!(
        problems.contains("3:23: proxy.tls.listen: must be `127.0.0.1:PORT` or `[::1]:PORT`"),
        "{problems}"
    );
}

#[test]
fn names_and_sockets_are_shared_with_no_listener_of_the_broker() {
    for (proxy, expected) in [
        ("{listen: {name: default}}", "3:17: proxy.listen: a listener of the broker has the name `default`"),
        ("{listen: {name: tls}}", "3:17: proxy.listen: access rules call the port of `proxy.tls` `tls`"),
        (
            "{listen: {socket: /a/s}}\nlisten: {socket: /a/s}",
            "proxy.listen: listener `default` of the broker has the same",
        ),
        ("{listen: [{name: a}, {name: b}]}", "3:29: proxy.listen[1]: listener `a` has the same socket"),
        ("{listen: [{}, {socket: /b/s}]}", "another listener has the name `proxy`"),
        ("{directory: x}", "3:20: proxy.directory: must be an absolute path"),
    ] {
        let problems = home(proxy).problems();
        assert!(problems.contains(expected) && problems.lines().count() == 1, "{proxy}: {problems}");
    }
}

#[test]
fn what_weakens_a_port_and_a_right_without_a_listener_are_warnings() {
    let warnings = home("{tls: {requireUid: false}}").warnings();
    assert!(warnings.contains("3:27: proxy.tls.requireUid: where the kernel does not say"), "{warnings}");
    let rules = "access: [{name: r, peers: {listeners: [tls, proxy]}, allow: {providers: [p], verbs: [proxy, admin]}}]";
    assert_eq!(home(&format!("{{listen: {{}}, tls: {{}}}}\n{rules}")).warnings(), "");
    let warnings = home(&format!("{{listen: {{}}}}\n{rules}")).warnings();
    assert!(warnings.contains("no listener has the name `tls`"), "{warnings}");
}
