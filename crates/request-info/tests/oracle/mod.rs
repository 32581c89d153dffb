//! Requests, what this crate reads in them, and what Go reads: the program of `oracle/`.

use std::{
    collections::BTreeMap,
    env,
    fmt::Write as _,
    io::{BufRead as _, BufReader, Lines, Write as _},
    process::{Child, ChildStdout, Command, Stdio},
    sync::mpsc::{Receiver, sync_channel},
    thread::{self, JoinHandle},
};

use credbroker_request_info::RequestInfo;
use fastrand::Rng;
use serde_json::Value;

/// The program that reads the requests too.
pub(crate) struct Oracle {
    program: Child,
    answers: Lines<BufReader<ChildStdout>>,
}

/// What Go reads in one request.
pub(crate) struct Answer(Value);

impl Oracle {
    /// Starts the program that `CREDBROKER_REQUEST_INFO` names. `None`: the variable is not set.
    ///
    /// On a thread, `requests` makes each line for it, a method, a space and a target, and what the caller receives of the request.
    pub(crate) fn start<T: Send + 'static>(
        mut requests: impl FnMut() -> (String, T) + Send + 'static,
    ) -> Option<(Self, Receiver<T>, JoinHandle<()>)> {
        let program = env::var_os("CREDBROKER_REQUEST_INFO")?;
        let mut program = Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut input = program.stdin.take().unwrap();
        let answers = BufReader::new(program.stdout.take().unwrap()).lines();
        // More than a pipe holds, so that both programs work at the same time.
        let (sender, receiver) = sync_channel(10_000);
        let count = count();
        let writer = thread::spawn(move || {
            for _ in 0..count {
                let (line, value) = requests();
                writeln!(input, "{line}").unwrap();
                sender.send(value).unwrap();
            }
        });
        Some((Self { program, answers }, receiver, writer))
    }

    /// What Go reads in the next request.
    pub(crate) fn next(&mut self) -> Answer {
        Answer(serde_json::from_str(&self.answers.next().unwrap().unwrap()).unwrap())
    }

    /// Waits for the end of the program.
    pub(crate) fn end(mut self) {
        assert!(self.answers.next().is_none());
        assert!(self.program.wait().unwrap().success());
    }
}

impl Answer {
    /// `attributes` or `http`. `None`: Go refuses the request.
    pub(crate) fn part(&self, name: &str) -> Option<BTreeMap<String, String>> {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        self.0[name]
            .as_object()
            .map(|part| part.iter().map(|(name, value)| (name.clone(), text(value))).collect())
    }
}

/// How many requests `CREDBROKER_REQUESTS` asks for.
pub(crate) fn count() -> usize {
    env::var("CREDBROKER_REQUESTS").map_or(100_000, |count| count.parse().unwrap())
}

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
/// How many of the segments are plain.
const PLAIN: usize = 21;
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
    "/api/v1/nodes/n/proxy",
    "/api/v1/namespaces/a/services/http%3Ax%3A80/proxy",
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

/// A method and a target.
pub(crate) fn request(rng: &mut Rng) -> (String, String) {
    let mut target = one(rng, STARTS).to_owned();
    // Half of the requests have only segments that no program refuses.
    let segments = if rng.bool() { SEGMENTS } else { &SEGMENTS[..PLAIN] };
    for _ in 0..rng.usize(..6) {
        target.push('/');
        target.push_str(one(rng, segments));
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

/// As the program has them.
pub(crate) fn attributes(info: RequestInfo) -> BTreeMap<String, String> {
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
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value))
    .collect()
}
