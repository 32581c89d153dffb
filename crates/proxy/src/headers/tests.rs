use http::{Method, Uri};
use proptest::prelude::*;
use secrecy::ExposeSecret as _;

use super::*;
use crate::path::Address;

/// Names and values.
type Of<'a> = &'a [(&'a str, &'a str)];

fn headers(of: Of<'_>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in of {
        headers.append(name.parse::<HeaderName>().unwrap(), value.parse().unwrap());
    }
    headers
}

/// All names and values, sorted.
fn shown(headers: &HeaderMap) -> Vec<String> {
    let mut lines: Vec<String> =
        headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
    lines.sort();
    lines
}

fn ours() -> String {
    concat!("credbroker/", env!("CARGO_PKG_VERSION")).to_owned()
}

#[test]
fn ambiguous_requests_are_refused() {
    let host = ("host", "127.0.0.1:8443");
    let cases: &[(Version, Of<'_>, u16)] = &[
        (Version::HTTP_10, &[host], 400),
        (Version::HTTP_09, &[host], 400),
        (Version::HTTP_11, &[], 400),
        (Version::HTTP_11, &[host, host], 400),
        (Version::HTTP_11, &[host, ("content-length", "1"), ("content-length", "1")], 400),
        (Version::HTTP_11, &[host, ("transfer-encoding", "chunked"), ("content-length", "1")], 400),
        (Version::HTTP_11, &[host, ("transfer-encoding", "gzip, chunked")], 400),
        (Version::HTTP_2, &[host, ("content-length", "")], 400),
        (Version::HTTP_2, &[host, ("content-length", "+1")], 400),
        (Version::HTTP_11, &[host, ("transfer-encoding", "identity")], 400),
        (Version::HTTP_11, &[host, ("transfer-encoding", "chunked"), ("transfer-encoding", "chunked")], 400),
        (Version::HTTP_11, &[host, ("authorization", "Bearer a"), ("authorization", "Bearer b")], 400),
        (Version::HTTP_2, &[("transfer-encoding", "chunked")], 400),
        (Version::HTTP_2, &[("connection", "close")], 400),
        (Version::HTTP_2, &[("upgrade", "websocket")], 400),
        (Version::HTTP_11, &[host, ("impersonate-user", "admin")], 403),
        (Version::HTTP_11, &[host, ("Impersonate-Extra-x", "a")], 403),
        (Version::HTTP_11, &[host, ("impersonate_group", "system:masters")], 403),
        (Version::HTTP_2, &[("impersonate-uid", "1")], 403),
        (Version::HTTP_11, &[host, ("connection", "upgrade")], 400),
        (Version::HTTP_11, &[host, ("upgrade", "websocket")], 400),
        (Version::HTTP_11, &[host, ("connection", "upgrade"), ("upgrade", "")], 400),
        (Version::HTTP_11, &[host, ("connection", "upgrade"), ("upgrade", "SPDY/3")], 400),
        (Version::HTTP_11, &[host, ("connection", "upgrade"), ("upgrade", "websocket, SPDY/3.1")], 400),
        (Version::HTTP_11, &[host, ("connection", "upgrade"), ("upgrade", "TLS/1.3")], 400),
        (
            Version::HTTP_11,
            &[host, ("connection", "upgrade"), ("upgrade", "websocket"), ("upgrade", "websocket")],
            400,
        ),
        (
            Version::HTTP_11,
            &[host, ("connection", "upgrade"), ("upgrade", "websocket"), ("content-length", "5")],
            400,
        ),
        (
            Version::HTTP_11,
            &[host, ("connection", "upgrade"), ("upgrade", "SPDY/3.1"), ("transfer-encoding", "chunked")],
            400,
        ),
    ];
    for (version, of, expected) in cases {
        let refused = check(*version, &headers(of)).expect_err(&format!("{version:?} {of:?}"));
        assert_eq!(refused.code, *expected, "{version:?} {of:?}: {refused}");
    }
    let long = "a".repeat(LONGEST);
    assert_eq!(check(Version::HTTP_11, &headers(&[host, ("x", &long)])).unwrap_err().code, 431);
}

#[test]
fn requests_of_clients_are_accepted() {
    let host = ("host", "127.0.0.1:8443");
    let cases: &[(Version, Of<'_>)] = &[
        (
            Version::HTTP_11,
            &[host, ("content-length", "0"), ("connection", "Upgrade"), ("upgrade", "SPDY/3.1")],
        ),
        (Version::HTTP_11, &[host, ("transfer-encoding", "Chunked"), ("connection", "keep-alive")]),
        (Version::HTTP_11, &[host, ("authorization", "Bearer a")]),
        (Version::HTTP_2, &[("te", "trailers"), ("content-length", "5")]),
    ];
    for (version, of) in cases {
        assert_eq!(check(*version, &headers(of)), Ok(()), "{of:?}");
    }
}

#[test]
fn an_upgrade_is_recognized() {
    let cases: &[(Of<'_>, Option<Protocol>)] = &[
        (&[], None),
        (&[("connection", "keep-alive")], None),
        (&[("connection", "Upgrade"), ("upgrade", "websocket")], Some(Protocol::WebSocket)),
        (&[("connection", "keep-alive, UPGRADE"), ("upgrade", "WebSocket")], Some(Protocol::WebSocket)),
        (
            &[("connection", "keep-alive"), ("connection", "\tupgrade ,"), ("upgrade", "spdy/3.1")],
            Some(Protocol::Spdy),
        ),
        (&[("connection", "Upgrade"), ("upgrade", "SPDY/3.1")], Some(Protocol::Spdy)),
        (&[("connection", "Upgrade, HTTP2-Settings"), ("upgrade", "h2c"), ("http2-settings", "AA")], None),
    ];
    for (of, expected) in cases {
        assert_eq!(upgrade(&headers(of)), Ok(*expected), "{of:?}");
    }
}

#[test]
fn nothing_of_the_client_or_its_connection_is_forwarded() {
    let sent = headers(&[
        ("host", "127.0.0.1:8443"),
        ("accept", "application/json"),
        ("accept-encoding", "gzip"),
        ("content-type", "application/json"),
        ("content-length", "2"),
        ("kubectl-command", "kubectl get"),
        ("user-agent", "kubectl/v1.35"),
        ("connection", "close, X-Secret"),
        ("connection", "accept-language"),
        ("x-secret", "a"),
        ("accept-language", "de"),
        ("keep-alive", "timeout=5"),
        ("te", "trailers"),
        ("trailer", "a"),
        ("transfer-encoding", "chunked"),
        ("upgrade", "h2c"),
        ("http2-settings", "AA"),
        ("expect", "100-continue"),
        ("authorization", "Bearer handle"),
        ("cookie", "a=b"),
        ("proxy-authorization", "Basic a"),
        ("proxy-connection", "keep-alive"),
        ("forwarded", "for=1.2.3.4"),
        ("x-forwarded-for", "1.2.3.4"),
        ("x-forwarded-client-cert", "a"),
        ("x-real-ip", "1.2.3.4"),
        ("x-remote-user", "admin"),
        ("X-Remote-Group", "system:masters"),
        ("x_remote_user", "admin"),
        ("x-remote-extra-a", "b"),
        ("x-http-method-override", "DELETE"),
        ("x-http-method", "DELETE"),
        ("x-method-override", "DELETE"),
        ("x-original-url", "/api"),
        ("x-rewrite-url", "/api"),
        ("impersonate-user", "admin"),
        ("audit-id", "theirs"),
    ]);
    assert_eq!(
        shown(&for_upstream(sent, "ours", false)),
        [
            "accept-encoding: gzip".to_owned(),
            "accept: application/json".to_owned(),
            "audit-id: ours".to_owned(),
            "content-length: 2".to_owned(),
            "content-type: application/json".to_owned(),
            "kubectl-command: kubectl get".to_owned(),
            format!("user-agent: kubectl/v1.35 {}", ours()),
        ]
    );
}

#[test]
fn a_client_cannot_remove_what_the_proxy_adds() {
    let sent = headers(&[("connection", "authorization, audit-id, user-agent, host")]);
    assert_eq!(
        shown(&for_upstream(sent, "ours", false)),
        ["audit-id: ours".to_owned(), format!("user-agent: {}", ours())]
    );
}

#[test]
fn an_upgrade_is_forwarded_without_the_handle() {
    let sent = [
        ("connection", "keep-alive, upgrade, x-other"),
        ("upgrade", "WebSocket"),
        ("x-other", "a"),
        ("sec-websocket-key", "a"),
        ("sec-websocket-protocol", "v5.channel.k8s.io, base64url.bearer.authorization.k8s.io.aGFuZGxl"),
        ("sec-websocket-protocol", "Base64url.bearer.authorization.k8s.io.aGFuZGxl,v4.channel.k8s.io"),
    ];
    let expected = |connection: &[&str]| {
        let mut lines: Vec<String> = connection.iter().map(|&line| line.to_owned()).collect();
        lines.push("sec-websocket-key: a".to_owned());
        lines.push("sec-websocket-protocol: v5.channel.k8s.io, v4.channel.k8s.io".to_owned());
        lines.push(format!("user-agent: {}", ours()));
        lines.push("audit-id: a".to_owned());
        lines.sort();
        lines
    };
    let upgrade = ["connection: Upgrade", "upgrade: websocket"];
    assert_eq!(shown(&for_upstream(headers(&sent), "a", true)), expected(&upgrade));
    assert_eq!(shown(&for_upstream(headers(&sent), "a", false)), expected(&[]));
    let alone = headers(&[("sec-websocket-protocol", "base64url.bearer.authorization.k8s.io.aGFuZGxl")]);
    assert!(!for_upstream(alone, "a", true).contains_key("sec-websocket-protocol"));
}

#[test]
fn a_handle_is_read() {
    let protocol = "v5.channel.k8s.io, base64url.bearer.authorization.k8s.io.aGFuZGxl";
    let cases: &[(Of<'_>, Option<Option<&str>>)] = &[
        (&[], Some(None)),
        (&[("authorization", "Bearer handle")], Some(Some("handle"))),
        (&[("authorization", "bearer  handle ")], Some(Some("handle"))),
        (&[("authorization", "Bearer")], Some(None)),
        (&[("authorization", "Bearer ")], Some(None)),
        (&[("authorization", "Basic aGFuZGxl")], Some(None)),
        (&[("sec-websocket-protocol", protocol)], Some(Some("handle"))),
        (&[("sec-websocket-protocol", "v5.channel.k8s.io")], Some(None)),
        (&[("authorization", "Bearer first"), ("sec-websocket-protocol", protocol)], Some(Some("first"))),
        (&[("authorization", "Bearer a"), ("authorization", "Bearer a")], None),
        (&[("sec-websocket-protocol", protocol), ("sec-websocket-protocol", protocol)], None),
        (&[("sec-websocket-protocol", "base64url.bearer.authorization.k8s.io.")], None),
        (&[("sec-websocket-protocol", "base64url.bearer.authorization.k8s.io.a+/=")], None),
        (&[("sec-websocket-protocol", "base64url.bearer.authorization.k8s.io._w")], None),
    ];
    for (of, expected) in cases {
        let read = handle(&headers(of)).map(|token| token.map(|token| token.expose_secret().to_owned()));
        assert_eq!(read.as_ref().map(Option::as_deref).ok(), *expected, "{of:?}");
    }
}

fn address(path: &str) -> Address {
    let uri = format!("/clusters/a/b{path}").parse().unwrap();
    Address::read(&Method::GET, &uri, Version::HTTP_11).unwrap()
}

fn answered(status: u16, server: &str, of: Of<'_>) -> Result<Vec<String>, u16> {
    let (mut answer, status) = (headers(of), status.try_into().unwrap());
    let server: Uri = server.parse().unwrap();
    let address = address("/api/v1/nodes/n/proxy/x");
    match for_client(&mut answer, status, &server, &address, Some(Protocol::Spdy)) {
        Ok(()) => Ok(shown(&answer)),
        Err(refused) => Err(refused.code.as_u16()),
    }
}

#[test]
fn an_answer_leaves_nothing_in_a_client() {
    let kept = [
        ("audit-id", "a"),
        ("content-length", "2"),
        ("content-type", "application/json"),
        ("retry-after", "1"),
    ];
    let removed = [
        ("connection", "close, X-Internal"),
        ("x-internal", "a"),
        ("keep-alive", "timeout=5"),
        ("transfer-encoding-x", "kept"),
        ("trailer", "a"),
        ("upgrade", "h2c"),
        ("set-cookie", "a=b"),
        ("set-cookie", "c=d"),
        ("alt-svc", "h3=\":443\""),
        ("www-authenticate", "Basic"),
        ("proxy-authenticate", "Basic"),
        ("strict-transport-security", "max-age=1"),
        ("access-control-allow-origin", "*"),
        ("access-control-allow-credentials", "true"),
        ("clear-site-data", "*"),
    ];
    let expected = vec![
        "audit-id: a",
        "content-length: 2",
        "content-type: application/json",
        "retry-after: 1",
        "transfer-encoding-x: kept",
    ];
    let all: Vec<_> = kept.into_iter().chain(removed).collect();
    assert_eq!(answered(200, "https://10.0.0.1", &all).unwrap(), expected);
}

#[test]
fn an_answer_with_two_ends_is_not_passed_on() {
    let chunked = ("transfer-encoding", "chunked");
    assert_eq!(answered(200, "https://10.0.0.1", &[chunked, ("content-length", "2")]), Err(502));
    assert_eq!(
        answered(200, "https://10.0.0.1", &[("content-length", "2"), ("content-length", "3")]),
        Err(502)
    );
    assert_eq!(answered(200, "https://10.0.0.1", &[("transfer-encoding", "gzip, chunked")]), Err(502));
    assert_eq!(answered(200, "https://10.0.0.1", &[chunked]), Ok(vec![]));
}

#[test]
fn only_the_protocol_that_the_client_asked_for_makes_a_tunnel() {
    let spdy = [("connection", "upgrade"), ("upgrade", "SPDY/3.1"), ("x-stream-protocol-version", "v4")];
    let expected = ["connection: Upgrade", "upgrade: SPDY/3.1", "x-stream-protocol-version: v4"];
    assert_eq!(answered(101, "https://10.0.0.1", &spdy).unwrap(), expected);
    for other in ["h2c", "websocket"] {
        assert_eq!(
            answered(101, "https://10.0.0.1", &[("connection", "upgrade"), ("upgrade", other)]),
            Err(502)
        );
    }
    assert_eq!(answered(101, "https://10.0.0.1", &[]), Err(502));
    assert_eq!(answered(403, "https://10.0.0.1", &spdy).unwrap(), ["x-stream-protocol-version: v4"]);
}

#[test]
fn a_redirect_stays_with_its_target() {
    let (plain, below) = ("https://10.0.0.1:6443", "https://rancher.example/k8s/clusters/c-1/");
    let cases = [
        (plain, "/api/v1/", Some("/api/v1/")),
        (plain, "/", Some("/")),
        (plain, "https://10.0.0.1:6443/api?a=/../b#c", Some("/api?a=/../b#c")),
        (plain, "HTTPS://10.0.0.1:6443", Some("/")),
        (plain, "//10.0.0.1:6443/api", Some("/api")),
        (plain, "y", Some("/api/v1/nodes/n/proxy/y")),
        (plain, "./y/", Some("/api/v1/nodes/n/proxy/y/")),
        (plain, "..", Some("/api/v1/nodes/n/")),
        (plain, "../../../../../version", Some("/version")),
        (plain, "?a=b", Some("/api/v1/nodes/n/proxy/x?a=b")),
        (plain, "/a/./b/../c", Some("/a/c")),
        (plain, "y:z/a", None),
        (plain, "./y:z", Some("/api/v1/nodes/n/proxy/y:z")),
        (plain, "https://10.0.0.1/api", None),
        (plain, "https://10.0.0.1:443/api", None),
        (plain, "http://10.0.0.1:6443/api", None),
        (plain, "https://10.0.0.2:6443/api", None),
        (plain, "https://10.0.0.1:6443@evil.example/api", None),
        (plain, "https://user@10.0.0.1:6443/api", None),
        (plain, "//evil.example/api", None),
        (plain, "///evil.example/api", None),
        (plain, "/\\evil.example/api", None),
        (plain, "https:/evil.example", None),
        (plain, "https:evil", None),
        (plain, "javascript:alert(1)", None),
        (plain, "", None),
        (plain, "/a b", None),
        (plain, "/../clusters/other/c", None),
        (plain, "/%2e%2e/other", None),
        (plain, "../../../../../../other", None),
        (below, "https://Rancher.example:443/k8s/clusters/c-1/api", Some("/api")),
        (below, "/k8s/clusters/c-1/api", Some("/api")),
        (below, "y", Some("/api/v1/nodes/n/proxy/y")),
        (below, "/api", None),
        (below, "/k8s/clusters/c-10/api", None),
        (below, "/k8s/clusters/c-1/../c-2/api", None),
    ];
    for (server, location, expected) in cases {
        let expected = expected.map(|path| vec![format!("location: /clusters/a/b{path}")]);
        assert_eq!(
            answered(302, server, &[("location", location)]),
            expected.clone().ok_or(502),
            "{location}"
        );
        // No client follows it.
        assert_eq!(
            answered(201, server, &[("location", location)]),
            Ok(expected.unwrap_or_default()),
            "{location}"
        );
    }
}

#[test]
fn pages_in_a_browser_are_refused() {
    let port = Site { scheme: "https", port: Some(8443), origins: vec!["https://listed.example".into()] };
    let default = Site { scheme: "https", port: Some(443), origins: Vec::new() };
    let socket = Site { scheme: "http", port: None, origins: Vec::new() };
    let host = ("host", "127.0.0.1:8443");
    let websocket = [("connection", "Upgrade"), ("upgrade", "websocket")];
    let with = |more: &[(&'static str, &'static str)]| -> Vec<_> { [&[host], more].concat() };
    let upgrade =
        |more: &[(&'static str, &'static str)]| -> Vec<_> { [&[host], &websocket[..], more].concat() };
    let cases = vec![
        (&port, "GET", "/", with(&[]), 200),
        (&port, "GET", "/", vec![("host", "LOCALHOST:8443")], 200),
        (&port, "GET", "/", vec![("host", "[::1]:8443")], 200),
        (&port, "GET", "https://127.0.0.1:8443/", vec![], 200),
        (&port, "GET", "https://127.0.0.1:8443/", with(&[]), 200),
        (&port, "GET", "https://127.0.0.1:8443/", vec![("host", "localhost:8443")], 421),
        (&port, "GET", "/", vec![], 400),
        (&port, "GET", "/", vec![("host", "")], 400),
        (&port, "GET", "/", vec![host, host], 200), // `check` refuses it
        (&port, "GET", "/", vec![host, ("host", "evil.example")], 421),
        (&port, "GET", "/", vec![("host", "127.0.0.1:8444")], 421),
        (&port, "GET", "/", vec![("host", "127.0.0.1")], 421),
        (&port, "GET", "/", vec![("host", "127.0.0.1:08443")], 421),
        (&default, "GET", "/", vec![("host", "127.0.0.1")], 200),
        (&default, "GET", "/", vec![("host", "127.0.0.1:443")], 200),
        (&port, "GET", "/", vec![("host", "rebound.example:8443")], 421),
        (&port, "GET", "/", vec![("host", "127.0.0.1.evil.example:8443")], 421),
        (&port, "GET", "/", vec![("host", "127.0.0.2:8443")], 421),
        (&port, "GET", "/", vec![("host", "a@127.0.0.1:8443")], 421),
        (&port, "OPTIONS", "/", with(&[]), 405),
        (&port, "GET", "/", with(&[("origin", "https://evil.example")]), 403),
        (&port, "GET", "/", with(&[("origin", "null")]), 403),
        (&port, "GET", "/", with(&[("origin", "https://127.0.0.1:8443")]), 403),
        (&port, "GET", "/", with(&[("origin", "https://listed.example")]), 200),
        (
            &port,
            "GET",
            "/",
            with(&[("origin", "https://listed.example"), ("sec-fetch-site", "cross-site")]),
            200,
        ),
        (
            &port,
            "GET",
            "/",
            with(&[("origin", "https://listed.example"), ("origin", "https://evil.example")]),
            403,
        ),
        (&port, "GET", "/", with(&[("sec-fetch-site", "none")]), 200),
        (&port, "GET", "/", with(&[("sec-fetch-site", "same-origin")]), 403),
        (&port, "GET", "/", with(&[("sec-fetch-site", "cross-site")]), 403),
        (&port, "GET", "/", with(&[("sec-fetch-site", "none"), ("sec-fetch-site", "cross-site")]), 403),
        (&port, "GET", "/", with(&[("sec-fetch-mode", "cors")]), 200),
        (&port, "GET", "/", upgrade(&[("origin", "https://127.0.0.1:8443")]), 200),
        (&port, "GET", "/", upgrade(&[("origin", "http://127.0.0.1:8443")]), 403),
        (&port, "GET", "/", upgrade(&[("origin", "https://localhost:8443")]), 403),
        (
            &port,
            "GET",
            "/",
            upgrade(&[("origin", "https://127.0.0.1:8443"), ("sec-fetch-site", "same-origin")]),
            403,
        ),
        (&port, "GET", "/", upgrade(&[("origin", "https://evil.example")]), 403),
        (&socket, "GET", "/", vec![("host", "localhost")], 200),
        (&socket, "GET", "/", vec![("host", "127.0.0.1:40001")], 200),
        (&socket, "GET", "/", vec![("host", "evil.example:40001")], 421),
        (&socket, "GET", "/", vec![("host", "127.0.0.1:40001"), ("origin", "http://127.0.0.1:40001")], 403),
    ];
    for (site, method, uri, of, expected) in cases {
        let (method, parsed) = (method.parse().unwrap(), uri.parse().unwrap());
        let code = site
            .check(&method, &parsed, &headers(&of))
            .map_or_else(|refused| refused.code.as_u16(), |()| 200);
        assert_eq!(code, expected, "{method} {uri} {of:?}");
    }
}

proptest! {
    #[test]
    fn what_is_forwarded_needs_no_second_pass(of in prop::collection::vec((
        "[a-z_-]{1,12}|connection|upgrade|x-remote-user|sec-websocket-protocol",
        "[ -~]{0,20}|upgrade, x-a|websocket",
    ), 0..12)) {
        let mut sent = HeaderMap::new();
        for (name, value) in &of {
            sent.append(name.parse::<HeaderName>().unwrap(), value.parse().unwrap());
        }
        for is_upgrade in [false, true] {
            let mut once = for_upstream(sent.clone(), "a", is_upgrade);
            let mut twice = for_upstream(once.clone(), "a", is_upgrade);
            once.remove(header::USER_AGENT);
            twice.remove(header::USER_AGENT);
            prop_assert_eq!(once, twice);
        }
    }
}
