//! What holds for any input, shared by the tests and the fuzz targets.

use std::collections::HashSet;

use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, Version, header};

use crate::{
    headers::{self, Site},
    path::Address,
};

const TARGET: &str = "/clusters/a/b";
const METHODS: [&str; 8] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "get"];

/// A method, by the first byte, and what follows it in the request line.
pub(crate) fn address(input: &[u8]) {
    let Some((method, rest)) = input.split_first() else { return };
    let Some(method) = METHODS.get(usize::from(*method) % METHODS.len()) else { return };
    let (Ok(method), Ok(rest)) = (method.parse::<Method>(), str::from_utf8(rest)) else { return };
    for received in
        [rest.to_owned(), format!("{TARGET}/{rest}"), format!("{TARGET}/api/v1/nodes/n/proxy/{rest}")]
    {
        let Ok(uri) = received.parse::<Uri>() else { continue };
        for version in [Version::HTTP_11, Version::HTTP_2] {
            match Address::read(&method, &uri, version) {
                Ok(address) => check_address(&method, &address),
                Err(refused) => assert!(refused.code.is_client_error() && refused.message.len() < 200),
            }
        }
    }
}

fn check_address(method: &Method, address: &Address) {
    let path = &address.path;
    let is_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@%/".contains(&byte);
    assert!(path.starts_with('/') && path.bytes().all(is_byte), "{path}");
    if address.attributes().subresource != "proxy" {
        assert!(!path.contains("//") && !path.contains("%2F") && !path.contains("%25"), "{path}");
    }
    let mut read = path.clone();
    for _ in 0..8 {
        let has_dots = read.split(['/', '\\']).any(|segment| matches!(segment, "." | ".."));
        assert!(!has_dots && !read.contains(char::is_control), "{path}");
        read = percent_encoding::percent_decode_str(&read).decode_utf8_lossy().into_owned();
    }

    let forwarded = address.path_and_query("").expect("a path can be forwarded");
    assert_eq!(forwarded.path(), path);
    assert_eq!(forwarded.query(), address.query.as_deref());
    let again: Uri = format!("{}{forwarded}", address.target).parse().expect("the proxy can receive it");
    assert_eq!(Address::read(method, &again, Version::HTTP_11).as_ref(), Ok(address));
}

/// Lines with a name, a colon and a value.
pub(crate) fn headers(input: &[u8]) {
    let mut sent = HeaderMap::new();
    for line in input.split(|byte| *byte == b'\n') {
        let at = line.iter().position(|byte| *byte == b':').unwrap_or(line.len());
        let (name, value) = line.split_at(at);
        let value = HeaderValue::from_bytes(value.get(1..).unwrap_or_default().trim_ascii());
        if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name), value) {
            sent.append(name, value);
        }
    }
    let named: HashSet<String> = sent
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|name| name.trim().to_ascii_lowercase())
        .collect();

    let accepted = headers::check(Version::HTTP_11, &sent);
    for is_upgrade in [false, true] {
        let forwarded = headers::for_upstream(sent.clone(), "id", is_upgrade);
        let protocol = headers::upgrade(&forwarded).expect("an upgrade is complete");
        assert!(is_upgrade || protocol.is_none());
        if accepted.is_ok() && is_upgrade {
            assert_eq!(Ok(protocol), headers::upgrade(&sent));
        }
        check_names(&forwarded, &named, protocol.is_some());
        for name in forwarded.keys().map(|name| name.as_str().replace('_', "-")) {
            let is_of_client = ["authorization", "cookie", "host", "forwarded", "expect"].contains(&&*name)
                || ["impersonate-", "x-remote-", "x-forwarded-", "proxy-"]
                    .iter()
                    .any(|it| name.starts_with(it));
            assert!(!is_of_client, "{name}");
        }
        assert!(headers::handle(&forwarded).expect("no handle is left").is_none());
        let ids: Vec<_> = forwarded.get_all("audit-id").iter().collect();
        assert_eq!(ids, ["id"]);
    }

    let uri = Uri::from_static("/clusters/a/b/api/v1/nodes/n/proxy/x");
    let address = Address::read(&Method::GET, &uri, Version::HTTP_11).expect("it is valid");
    for server in ["https://10.0.0.1:6443", "https://rancher.example/k8s/c-1"] {
        for status in [StatusCode::OK, StatusCode::FOUND, StatusCode::SWITCHING_PROTOCOLS] {
            let mut answer = sent.clone();
            let server = server.parse().expect("it is a URL");
            let asked = headers::upgrade(&sent).ok().flatten();
            if headers::for_client(&mut answer, status, &server, &address, asked).is_ok() {
                check_answer(&answer, &named, status);
            }
        }
    }

    let site = Site { scheme: "https", port: Some(8443), origins: Vec::new() };
    if site.check(&Method::GET, &uri, &sent).is_ok() {
        let host = sent.get(header::HOST).and_then(|host| host.to_str().ok()).expect("there is a host");
        let ours = ["127.0.0.1:8443", "localhost:8443", "[::1]:8443"];
        assert!(ours.iter().any(|ours| host.eq_ignore_ascii_case(ours)), "{host}");
        let origin = sent.get(header::ORIGIN).map(HeaderValue::as_bytes);
        let is_ours = |origin: &[u8]| origin.eq_ignore_ascii_case(format!("https://{host}").as_bytes());
        assert!(origin.is_none_or(is_ours), "{origin:?}");
    }
}

/// Nothing of the connection is left, except for an upgrade.
fn check_names(forwarded: &HeaderMap, named: &HashSet<String>, is_upgrade: bool) {
    let ours = ["audit-id", "user-agent", "connection", "upgrade"];
    for name in forwarded.keys().map(HeaderName::as_str) {
        assert!(!named.contains(name) || ours.contains(&name), "{name} is named by `Connection`");
        let is_hop = ["keep-alive", "te", "trailer", "transfer-encoding", "http2-settings"].contains(&name);
        assert!(!is_hop && (is_upgrade || !["connection", "upgrade"].contains(&name)), "{name}");
    }
}

fn check_answer(answer: &HeaderMap, named: &HashSet<String>, status: StatusCode) {
    check_names(answer, named, status == StatusCode::SWITCHING_PROTOCOLS);
    for name in answer.keys().map(HeaderName::as_str) {
        let is_kept = ["set-cookie", "alt-svc", "www-authenticate"].contains(&name);
        assert!(!is_kept && !name.starts_with("access-control-"), "{name}");
    }
    if let Some(location) = answer.get(header::LOCATION) {
        let location = location.to_str().expect("it is ASCII");
        let path = location.split(['?', '#']).next().unwrap_or_default();
        assert!(path.starts_with("/clusters/a/b/"), "{location}");
        let plain = path.to_ascii_lowercase().replace("%2e", ".");
        assert!(!plain.split(['/', '\\']).any(|segment| matches!(segment, "." | "..")), "{location}");
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use proptest::{prelude::*, sample::Index};

    /// Checks the seeds of a fuzz target, and changes of them.
    fn check(target: &str, check: fn(&[u8])) {
        let directory = format!("{}/../../fuzz/seeds/{target}", env!("CARGO_MANIFEST_DIR"));
        let files = fs::read_dir(directory).unwrap().map(|file| fs::read(file.unwrap().path()).unwrap());
        let seeds: Vec<Vec<u8>> = files.collect();
        for seed in &seeds {
            check(seed);
        }
        let pieces =
            ["/", "..", "%", "2e", "%2F", ";", "//", "proxy", "\n", ":", ",", "upgrade", "-", "_", "\\"];
        let change = (any::<Index>(), 0..3_usize, prop::sample::select(pieces.to_vec()));
        let changed = (prop::sample::select(seeds), prop::collection::vec(change, 1..6));
        let mut config = ProptestConfig::with_cases(2000);
        config.failure_persistence = None;
        proptest!(config, |((mut bytes, changes) in changed)| {
            for (at, removed, piece) in changes {
                let at = at.index(bytes.len() + 1);
                let end = (at + removed).min(bytes.len());
                bytes.splice(at..end, piece.bytes());
            }
            check(&bytes);
        });
    }

    #[test]
    fn what_is_forwarded_is_read_as_the_same_again() {
        check("address", super::address);
    }

    #[test]
    fn nothing_of_a_client_or_a_connection_is_forwarded() {
        check("headers", super::headers);
    }
}
