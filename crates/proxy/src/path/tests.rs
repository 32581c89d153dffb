use proptest::prelude::*;

use super::*;

const TARGET: &str = "/clusters/team-a/prod";

fn read(method: &str, uri: &str) -> Result<Address, Refused> {
    let uri = uri.parse().unwrap_or_else(|_| panic!("{uri} is not a URI"));
    Address::read(&method.parse().unwrap(), &uri, Version::HTTP_11)
}

/// The code, and the message.
fn refusal(method: &str, uri: &str) -> (u16, String) {
    let Err(refused) = read(method, uri) else { panic!("{method} {uri} is accepted") };
    (refused.code.as_u16(), refused.message)
}

fn forwarded(method: &str, uri: &str) -> String {
    let address = read(method, uri).unwrap_or_else(|refused| panic!("{method} {uri}: {refused}"));
    address.path_and_query("").unwrap().to_string()
}

#[test]
fn what_two_programs_read_differently_is_refused() {
    let cases = [
        ("//api", "an empty segment"),
        ("/api//v1", "an empty segment"),
        ("/api/v1//", "an empty segment"),
        ("/.", "`.` or `..`"),
        ("/api/./v1", "`.` or `..`"),
        ("/api/../api", "`.` or `..`"),
        ("/api/..", "`.` or `..`"),
        ("/api/%2e%2E/api", "`.` or `..`"),
        ("/api/.%2e", "`.` or `..`"),
        ("/api/v1%2Fpods", "an encoded `/` or `%`"),
        ("/api/v1/pods/a%2f..", "an encoded `/` or `%`"),
        ("/api/v1/pods/a%25", "an encoded `/` or `%`"),
        ("/api/v1/pods/%252e%252e", "an encoded `/` or `%`"),
        ("/api/v1/pods/a%00", "a control character"),
        ("/api/v1/pods/a%0d%0aHost:x", "a control character"),
        ("/api/v1/pods/a%7F", "a control character"),
        ("/api/v1/pods/%C2%85", "a control character"),
        ("/api/v1/pods/%ff", "not UTF-8"),
        ("/api/v1/pods/%c0%ae%c0%ae", "not UTF-8"),
        ("/api/v1/pods/%", "two hexadecimal digits"),
        ("/api/v1/pods/%4", "two hexadecimal digits"),
        ("/api/v1/pods/%zz", "two hexadecimal digits"),
        ("/api/v1/pods/%+1", "two hexadecimal digits"),
        ("/api/v1/pods/a\\b", "the path has a character"),
        ("/api/v1/pods/a\"b", "the path has a character"),
        ("/api/v1/pods/{a}", "the path has a character"),
        ("/api/v1/pods/a|b", "the path has a character"),
        ("/api/v1/pods/[a]", "the path has a character"),
        ("/api/v1/pods/a^b", "the path has a character"),
        ("/api/v1/pods?a=1;watch=1", "the query has a `;`"),
        ("/api/v1/pods?watch=%zz", "the query has a `%`"),
        ("/api/v1/pods?%=1", "the query has a `%`"),
        ("/api/v1/pods?a=[b]", "the query has a character"),
        ("/api/v1/pods?a=b\\c", "the query has a character"),
        ("/api/v1/pods?watch=1&watch=0", "`watch` more than once"),
        ("/api/v1/pods?watch=1&w%61tch=0", "`watch` more than once"),
        ("/api/v1/pods?watch&watch", "`watch` more than once"),
        ("/api/v1/pods/x?dryRun=All&dryRun=", "`dryRun` more than once"),
        ("/api/v1/pods?fieldSelector=&fieldSelector=a%3Db", "`fieldSelector` more than once"),
        ("/api/v1/pods?labelSelector=a&labelSelector=b", "`labelSelector` more than once"),
        ("/api/v1/pods?resourceVersion=1&resourceVersion=2", "`resourceVersion` more than once"),
        ("/api/v1/pods?limit=1&limit=2", "`limit` more than once"),
        ("/api/v1/pods?continue=1&continue=2", "`continue` more than once"),
        ("/api/v1/pods?timeoutSeconds=1&timeoutSeconds=2", "`timeoutSeconds` more than once"),
        ("/api/v1/pods?watch=yes", "`watch` must be"),
        ("/api/v1/pods?watch=fal%C5%BFe", "`watch` must be"),
        ("/api/v1/pods/x?watch=no", "`watch` must be"),
        ("/api/v1/pods?limit=many", "a selector, `limit`"),
        ("/api/v1/pods?timeoutSeconds=", "a selector, `limit`"),
        ("/api/v1/pods?labelSelector=a+b", "a selector, `limit`"),
        ("/api/v1/pods?fieldSelector=a", "a selector, `limit`"),
        ("/api/v1/pods?labelSelector=%ff", "not UTF-8"),
        ("/api/v1/watch", "the path ends"),
        ("/api/v1/proxy", "the path ends"),
        ("/api/v1/watch/pods", "the verb `watch`"),
        ("/apis/apps/v1/watch/namespaces/a/deployments", "the verb `watch`"),
        ("/api/v1/proxy/nodes/n", "the verb `proxy`"),
        ("/api/v1/%70roxy/nodes/n", "the verb `proxy`"),
        ("/api/v1/Pods", "lower-case"),
        ("/api/V1/pods", "lower-case"),
        ("/apis/Apps/v1/deployments", "lower-case"),
        ("/api/v1/namespaces/a/pods/x/Exec", "lower-case"),
        ("/api/v1/*", "lower-case"),
        ("/api/v1/p%C3%B6ds", "lower-case"),
        ("/API/v1/pods", "`api` and `apis`"),
        ("/Apis/apps/v1/deployments", "`api` and `apis`"),
    ];
    for (rest, expected) in cases {
        let (code, message) = refusal("GET", &format!("{TARGET}{rest}"));
        assert_eq!(code, 400, "{rest}: {message}");
        assert!(message.contains(expected), "{rest}: {message}");
    }
}

#[test]
fn a_request_without_a_path_to_a_target_is_refused() {
    let cases = [
        ("GET", "http://127.0.0.1/clusters/team-a/prod/api", 400),
        ("GET", "https://example.com/clusters/team-a/prod/api", 400),
        ("OPTIONS", "*", 405),
        ("GET", "*", 400),
        ("CONNECT", "example.com:443", 405),
        ("TRACE", "/clusters/team-a/prod/api", 405),
        ("OPTIONS", "/clusters/team-a/prod/api", 405),
        ("get", "/clusters/team-a/prod/api", 405),
        ("PROPFIND", "/clusters/team-a/prod/api", 405),
        ("GET", "/", 404),
        ("GET", "/api/v1/pods", 404),
        ("GET", "/Clusters/team-a/prod/api", 404),
        ("GET", "/healthz", 404),
        ("GET", "/..", 400),
        ("GET", "/clusters/..%2f../prod/api", 400),
        ("GET", "/clusters/team-a/%2e%2e/api", 400),
        // Such a target cannot exist, and that is what the answer says.
        ("GET", "/clusters", 403),
        ("GET", "/clusters/team-a", 403),
        ("GET", "/clusters/team-a/", 403),
        ("GET", "/clusters//prod/api", 403),
        ("GET", "/clusters/team%3Aa/prod/api", 403),
        ("GET", "/contexts/kind/api", 403),
        ("GET", "/contexts/0123456789ab/api", 403),
        ("GET", "/contexts/-0123456789ab/api", 403),
        ("GET", "/contexts/kind-0123456789AB/api", 403),
        ("GET", "/contexts/kind-0123456789a/api", 403),
        ("GET", "/contexts/kind-00123456789ab/api", 403),
    ];
    for (method, uri, expected) in cases {
        let (code, message) = refusal(method, uri);
        assert_eq!(code, expected, "{method} {uri}: {message}");
        assert_eq!(code == 403, message == Refused::target().message, "{method} {uri}: {message}");
    }
}

#[test]
fn over_http_2_the_authority_is_not_of_the_path() {
    let uri = "https://127.0.0.1:8443/clusters/team-a/prod/version".parse().unwrap();
    assert_eq!(Address::read(&Method::GET, &uri, Version::HTTP_2).unwrap().path, "/version");
}

#[test]
fn a_long_request_is_refused() {
    let uri = |length: usize| {
        let start = format!("{TARGET}/api/v1/pods?pretty=");
        format!("{start}{}", "a".repeat(length - start.len()))
    };
    assert!(read("GET", &uri(LONGEST)).is_ok());
    assert_eq!(refusal("GET", &uri(LONGEST + 1)).0, 414);
}

#[test]
fn a_target_is_taken_off_the_path() {
    let cluster = TargetName::Cluster { namespace: "team-a".into(), name: "prod".into() };
    let context = TargetName::Context { slug: "kind-a".into(), digest: "0123456789ab".into() };
    let cases = [
        ("/clusters/team-a/prod", &cluster, "/"),
        ("/clusters/team-a/prod/", &cluster, "/"),
        ("/clusters/team-a/prod?", &cluster, "/"),
        ("/clusters/team-a/prod?a=b", &cluster, "/?a=b"),
        ("/%63lusters/team%2Da/prod/api", &cluster, "/api"),
        ("/contexts/kind-a-0123456789ab/api/", &context, "/api/"),
        ("/contexts/kind-a-0123456789ab", &context, "/"),
    ];
    for (uri, target, expected) in cases {
        assert_eq!(&*read("GET", uri).unwrap().target, target, "{uri}");
        assert_eq!(forwarded("GET", uri), expected, "{uri}");
    }
    assert_eq!(cluster.to_string(), TARGET);
    assert_eq!(context.to_string(), "/contexts/kind-a-0123456789ab");
}

#[test]
fn a_path_is_written_again() {
    let cases = [
        ("/api/v1/pods/", "/api/v1/pods/"),
        ("/%61pi/v1/%70ods", "/api/v1/pods"),
        ("/api/v1/pods/a%20b", "/api/v1/pods/a%20b"),
        ("/api/v1/pods/a+b", "/api/v1/pods/a+b"),
        ("/api/v1/pods/%c3%a9", "/api/v1/pods/%C3%A9"),
        ("/api/v1/pods/a;b(c)*!'", "/api/v1/pods/a%3Bb%28c%29%2A%21%27"),
        ("/api/v1/pods/a%3fb%23", "/api/v1/pods/a%3Fb%23"),
        ("/api/v1/pods/...", "/api/v1/pods/..."),
        (
            "/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Anode",
            "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:node",
        ),
        // The query is forwarded as it is, with parameters that are repeated on purpose.
        (
            "/api/v1/namespaces/a/pods/x/exec?command=sh&command=-c&command=%0a%2f&&a&=b",
            "/api/v1/namespaces/a/pods/x/exec?command=sh&command=-c&command=%0a%2f&&a&=b",
        ),
        ("/api/v1/pods?watch=", "/api/v1/pods?watch="),
        ("/api/v1/pods?watch", "/api/v1/pods?watch"),
        ("/api/v1/pods?watch=True", "/api/v1/pods?watch=True"),
        ("/api/v1/pods?watch=FALSE", "/api/v1/pods?watch=FALSE"),
        (
            "/apis/apps/v1/deployments?labelSelector=a+in+(b,c)",
            "/apis/apps/v1/deployments?labelSelector=a+in+(b,c)",
        ),
        ("/api/v1/namespaces/a/pods/x?limit=many", "/api/v1/namespaces/a/pods/x?limit=many"),
        // `proxy` as a name is not a subresource.
        ("/api/v1/namespaces/proxy/pods/%61", "/api/v1/namespaces/proxy/pods/a"),
        ("/api/v1/namespaces/a/configmaps/proxy/%61", "/api/v1/namespaces/a/configmaps/proxy/a"),
    ];
    for (sent, expected) in cases {
        assert_eq!(forwarded("GET", &format!("{TARGET}{sent}")), expected, "{sent}");
    }
}

#[test]
fn below_proxy_the_rest_passes_as_it_is() {
    let node = format!("{TARGET}/api/v1/nodes/n/proxy");
    let service = format!("{TARGET}/api/v1/namespaces/a/services/https:x:443/proxy");
    let as_it_is = [
        "",
        "/",
        "//a",
        "/a//b",
        "/a%2Fb",
        "/100%25",
        "/a%252520b",
        "/a;b=c/d",
        "/(a)!*'",
        "/%61",
        "/.../.a/..b",
        "/?a=1;b=2",
        "/a?q=%zz&watch=1&watch=2",
        "/a?x={a:[1|2]}^",
        "/a/proxy/b%2Fc",
    ];
    for rest in as_it_is {
        assert_eq!(
            format!("{TARGET}{}", forwarded("GET", &format!("{node}{rest}"))),
            format!("{node}{rest}")
        );
        assert_eq!(
            format!("{TARGET}{}", forwarded("POST", &format!("{service}{rest}"))),
            format!("{service}{rest}")
        );
    }
    let refused = [
        ("/..", "`.` or `..`"),
        ("/./a", "`.` or `..`"),
        ("/a/../b", "`.` or `..`"),
        ("/%2e%2e/a", "`.` or `..`"),
        ("/..%2fa", "`.` or `..`"),
        ("/a%2f..%2fb", "`.` or `..`"),
        ("/%252e%252e/a", "`.` or `..`"),
        ("/a%25252f%25252e", "`.` or `..`"),
        ("/..%5ca", "`.` or `..`"),
        ("/..;a=b/c", "`.` or `..`"),
        ("/a\\..", "a character"),
        ("/a%250a", "a control character"),
        ("/a%2525252525", "too many times"),
        ("/a[0]", "a character"),
        ("/a%00", "a control character"),
        ("/a%0d%0a", "a control character"),
        ("/%ff", "not UTF-8"),
        ("/%zz", "two hexadecimal digits"),
    ];
    for (rest, expected) in refused {
        for start in [&node, &service] {
            let (code, message) = refusal("GET", &format!("{start}{rest}"));
            assert_eq!(code, 400, "{rest}");
            assert!(message.contains(expected), "{rest}: {message}");
        }
    }
}

#[test]
fn attributes_are_of_what_is_forwarded() {
    let uri = format!("{TARGET}/api/v1/namespaces/a/pods/x%3Ay/exec?command=ls");
    let address = read("POST", &uri).unwrap();
    let info = address.attributes();
    assert_eq!(*info, RequestInfo::of("POST", &address.path, "command=ls").unwrap());
    assert_eq!(
        [&*info.verb, &*info.namespace, &*info.resource, &*info.name, &*info.subresource],
        ["create", "a", "pods", "x:y", "exec"]
    );
}

#[test]
fn a_base_is_in_front_of_the_path() {
    let address = read("GET", &format!("{TARGET}/api?a=b")).unwrap();
    for (base, expected) in
        [("", "/api?a=b"), ("/", "/api?a=b"), ("/k8s/clusters/c-1/", "/k8s/clusters/c-1/api?a=b")]
    {
        assert_eq!(address.path_and_query(base).unwrap(), expected);
    }
}

/// Text of a segment, encoded in one of the ways that clients have.
fn encoded(plain: &str, is_encoded: &[bool]) -> String {
    let mut choices = is_encoded.iter().cycle();
    plain
        .bytes()
        .map(|byte| match byte {
            byte if segment::is_pchar(byte)
                && byte != b'%'
                && !choices.next().copied().unwrap_or_default() =>
            {
                char::from(byte).to_string()
            }
            byte => format!("%{byte:02x}"),
        })
        .collect()
}

proptest! {
    #[test]
    fn any_name_survives(
        names in prop::collection::vec("[^/%\\pC]{1,12}", 1..6),
        choices in prop::collection::vec(any::<bool>(), 1..40),
    ) {
        prop_assume!(!names.iter().any(|name| name == "." || name == ".."));
        let sent = |choices: &[bool]| {
            let names: Vec<String> = names.iter().map(|name| encoded(name, choices)).collect();
            read("GET", &format!("{TARGET}/x/{}", names.join("/"))).unwrap()
        };
        let address = sent(&choices);
        prop_assert_eq!(&address.attributes().path, &format!("/x/{}", names.join("/")));
        // However a client encodes it, the API server gets the same.
        prop_assert_eq!(&address, &sent(&[true]));
    }

    #[test]
    fn what_is_forwarded_is_read_as_the_same(
        start in "(/api/v1|/apis/apps/v1)?",
        rest in "(/(namespaces|a|pods|proxy|watch|[ -~]{0,4}|%[0-9a-f]{2}|\\.{1,2})){0,6}",
        query in "(\\?[!-~]{0,12}(&[a-z]{1,3}=[!-~]{0,5}){0,3})?",
    ) {
        let uri = format!("{TARGET}{start}{rest}{query}").parse();
        let Ok(uri) = uri else { return Ok(()) };
        if let Ok(address) = Address::read(&Method::GET, &uri, Version::HTTP_11) {
            let forwarded = address.path_and_query("").unwrap().to_string();
            prop_assert_eq!(read("GET", &format!("{TARGET}{forwarded}")), Ok(address));
        }
    }
}
