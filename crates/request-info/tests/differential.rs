//! The same requests read by this crate and by `k8s.io/apiserver`. `CREDBROKER_REQUEST_INFO` names the program of `oracle/`, and
//! `CREDBROKER_REQUESTS` how many requests there are (100,000). Without the program, nothing is compared.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests end by panics, and start programs")]

use std::{
    collections::BTreeMap,
    env,
    fmt::Write as _,
    io::{BufRead as _, BufReader, Write as _},
    process::{Command, Stdio},
    thread,
};

use credbroker_request_info::RequestInfo;
use fastrand::Rng;

const SEED: u64 = 0x63_7265_6462;
const METHODS: &[&str] = &[
    "GET", "GET", "GET", "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "DELETE", "OPTIONS", "CONNECT",
    "get", "X",
];
const SEGMENTS: &[&str] = &[
    "api",
    "apis",
    "v1",
    "v1beta1",
    "apps",
    "rbac.authorization.k8s.io",
    "namespaces",
    "default",
    "a",
    "watch",
    "proxy",
    "pods",
    "nodes",
    "secrets",
    "status",
    "finalize",
    "exec",
    "log",
    "x",
    "x-1",
    "system%3Anode",
    "%61pi",
    "a%2Fb",
    "%2e%2e",
    ".",
    "..",
    "",
    "a%25",
    "Pods",
    "%C3%A9",
    "é",
    "%00",
    "a+b",
    "a=b",
    "metrics",
];
const STARTS: &[&str] = &[
    "/api/v1",
    "/api/v1/namespaces/a",
    "/apis/apps/v1",
    "/apis/apps/v1/namespaces/a",
    "/api/v1/watch",
    "/api/v1/proxy",
    "",
    "/",
    "//",
    "/apis",
    "/openapi/v3",
];
const NAMES: &[&str] = &[
    "watch",
    "watch",
    "fieldSelector",
    "fieldSelector",
    "labelSelector",
    "labelSelector",
    "limit",
    "timeoutSeconds",
    "resourceVersion",
    "continue",
    "sendInitialEvents",
    "allowWatchBookmarks",
    "dryRun",
    "w%61tch",
    "pretty",
    "",
];
const VALUES: &[&str] = &[
    "true",
    "false",
    "FALSE",
    "fal%C5%BFe",
    "1",
    "0",
    "",
    "500",
    "-1",
    "+5",
    "%2B5",
    "many",
    "99999999999999999999",
    "metadata.name%3Dx",
    "metadata.name%3D%3Dx",
    "metadata.name!%3Dx",
    "metadata.name=x",
    "metadata.name%3D..",
    "metadata.name%3Da%2Fb",
    "a%3Db",
    "%zz",
    "%ff",
    "a;b",
];
/// Of which selectors are made.
const PIECES: &[&str] = &[
    "a",
    "app",
    "b-1",
    "in",
    "notin",
    "example.com/a",
    "Example.com/a",
    "a/b/c",
    "/a",
    "a/",
    "-a",
    "a_",
    "=",
    "==",
    "!=",
    "!",
    "(",
    ")",
    ",",
    "<",
    ">",
    "5",
    "x",
    " ",
    "\t",
    "\\",
    "\\,",
    "\\=",
    "metadata.name",
    "spec.nodeName",
    "..",
    "\0",
    "é",
    "%",
];

fn one<'a>(rng: &mut Rng, of: &[&'a str]) -> &'a str {
    of.get(rng.usize(..of.len())).copied().unwrap_or_default()
}

fn encoded(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        match byte {
            b' ' => encoded.push('+'),
            b if b.is_ascii_alphanumeric() => encoded.push(char::from(b)),
            b => write!(encoded, "%{b:02X}").unwrap(),
        }
    }
    encoded
}

fn request(rng: &mut Rng) -> (String, String) {
    let mut target = one(rng, STARTS).to_owned();
    for _ in 0..rng.usize(..6) {
        target.push('/');
        target.push_str(one(rng, SEGMENTS));
    }
    if !target.starts_with('/') {
        target.insert(0, '/');
    }
    for number in 0..rng.usize(..4) {
        target.push(if number == 0 { '?' } else { '&' });
        let name = one(rng, NAMES);
        target.push_str(name);
        if rng.u8(..) < 240 {
            target.push('=');
        }
        if name.ends_with("Selector") && rng.bool() {
            let pieces = (0..rng.usize(1..8)).map(|_| one(rng, PIECES)).collect::<String>();
            target.push_str(&encoded(&pieces));
        } else {
            target.push_str(one(rng, VALUES));
        }
    }
    (one(rng, METHODS).to_owned(), target)
}

fn attributes(info: RequestInfo) -> BTreeMap<&'static str, String> {
    BTreeMap::from([
        ("is_resource", info.is_resource.to_string()),
        ("path", info.path),
        ("verb", info.verb),
        ("api_prefix", info.api_prefix),
        ("api_group", info.api_group),
        ("api_version", info.api_version),
        ("namespace", info.namespace),
        ("resource", info.resource),
        ("subresource", info.subresource),
        ("name", info.name),
        ("parts", info.parts.join("\0")),
        ("field_selector", info.field_selector),
        ("label_selector", info.label_selector),
    ])
}

#[test]
fn requests_have_the_attributes_that_the_api_server_gives_them() {
    let Some(program) = env::var_os("CREDBROKER_REQUEST_INFO") else { return };
    let count = env::var("CREDBROKER_REQUESTS").map_or(100_000, |count| count.parse().unwrap());
    let mut oracle = Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut input, output) = (oracle.stdin.take().unwrap(), BufReader::new(oracle.stdout.take().unwrap()));
    let writer = thread::spawn(move || {
        let mut rng = Rng::with_seed(SEED);
        for _ in 0..count {
            let (method, target) = request(&mut rng);
            writeln!(input, "{method} {target}").unwrap();
        }
    });
    let (mut rng, mut accepted, mut resources) = (Rng::with_seed(SEED), 0, 0);
    let mut lines = output.lines();
    for _ in 0..count {
        let (method, target) = request(&mut rng);
        let theirs = lines.next().unwrap().unwrap();
        let (path, query) = target.split_once('?').unwrap_or((&target, ""));
        // What this crate refuses, the proxy refuses too.
        let Ok(ours) = RequestInfo::of(&method, path, query) else { continue };
        accepted += 1;
        resources += u32::from(ours.is_resource);
        let theirs: Option<BTreeMap<String, String>> = serde_json::from_str(&theirs).unwrap();
        let ours = attributes(ours).into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        assert_eq!(Some(ours), theirs, "{method} {target}");
    }
    writer.join().unwrap();
    assert!(oracle.wait().unwrap().success());
    assert!(
        accepted > count / 2 && resources > count / 4,
        "{accepted} accepted, {resources} for resources, of {count}"
    );
}
