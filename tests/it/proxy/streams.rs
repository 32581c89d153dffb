//! Open watches and tunnels, through a bridge, which sends the bytes of a test as the user.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    process::{Command, Stdio},
    time::Instant,
};

use super::setting::{AGES, AS_USER, PROGRAM, Setting, text, until};
use crate::harness::Killed;
use serde_json::json;

const WATCH: &str = "/apis/multicluster.x-k8s.io/v1alpha1/clusterprofiles?watch=1";
const EXEC: &str = "/api/v1/namespaces/default/pods/p/exec?command=sh";

/// A bridge of the user.
struct Bridge {
    address: String,
    _process: Killed,
}

impl Bridge {
    fn start(setting: &Setting) -> Self {
        let socket = setting.socket();
        let fixed =
            [PROGRAM, "bridge", "--listen", "127.0.0.1:0", "--host-network", "--socket", text(&socket)];
        let words = [&AS_USER[..], &fixed].concat();
        let mut child = Command::new(words[0]).args(&words[1..]).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let (_, rest) = line.split_once("\"server\":\"http://").unwrap();
        let address = rest.split(['/', '"']).next().unwrap().to_owned();
        Self { address, _process: Killed(child) }
    }

    /// The connection of a request whose answer has begun with the status `code`.
    fn open(&self, path: &str, headers: &str, code: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(AGES)).unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: {}\r\n{headers}\r\n", self.address);
        stream.write_all(request.as_bytes()).unwrap();
        let head = read_to(&mut stream, "\r\n\r\n");
        assert!(head.starts_with(&format!("HTTP/1.1 {code} ")), "{head}");
        stream
    }
}

/// Reads until the end of what was read is `end`.
fn read_to(stream: &mut TcpStream, end: &str) -> String {
    let (mut read, mut byte) = (Vec::new(), [0]);
    while !read.ends_with(end.as_bytes()) {
        stream.read_exact(&mut byte).unwrap();
        read.push(byte[0]);
    }
    String::from_utf8(read).unwrap()
}

/// An open watch and an open tunnel.
struct Streams {
    watch: TcpStream,
    tunnel: TcpStream,
}

impl Streams {
    fn open(bridge: &Bridge, target: &str) -> Self {
        let watch = bridge.open(&format!("{target}{WATCH}"), "", "200");
        let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\n";
        let tunnel = bridge.open(&format!("{target}{EXEC}"), upgrade, "101");
        Self { watch, tunnel }
    }

    /// Both carry something.
    fn are_open(&mut self, setting: &Setting, name: &str) {
        setting.server.apply_cluster_profile("fleet", name, json!({}));
        // What was there before comes first.
        while !read_to(&mut self.watch, "}\n").contains(name) {}
        self.tunnel.write_all(name.as_bytes()).unwrap();
        read_to(&mut self.tunnel, name);
    }

    /// The watch ends as if the server had ended it, and the tunnel ends.
    fn end(mut self) {
        let begin = Instant::now();
        read_to(&mut self.watch, "\r\n0\r\n\r\n");
        let mut rest = Vec::new();
        match self.tunnel.read_to_end(&mut rest) {
            Ok(_) => {}
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset),
        }
        println!("the streams ended after {:?}", begin.elapsed());
    }
}

/// A rotation ends no stream. An eviction ends those that began before, and so does the loss of the right.
pub(super) fn end_with_the_credential_and_with_the_right(setting: &Setting) {
    let (target, bridge) = (setting.target(), Bridge::start(setting));
    let mut streams = Streams::open(&bridge, &target);
    streams.are_open(setting, "one");
    let (document, text) = setting.status();
    assert_eq!(document["socket"], json!(setting.handles()));
    let used = &document["targets"][0];
    assert_eq!((&used["name"], &used["path"]), (&json!("prod"), &json!(target)));
    assert_eq!((&used["requests"], &used["streams"]), (&json!(2), &json!(2)), "{document}");
    assert!(used["bytesUp"] == json!(3) && used["bytesDown"].as_u64().unwrap() > 3, "{document}");
    assert!(document["connections"].as_u64().unwrap() >= 2, "{document}");
    let row = text.lines().find(|line| line.starts_with("prod ")).unwrap_or_else(|| panic!("{text}"));
    assert_eq!(row.split_whitespace().take(3).collect::<Vec<_>>(), ["prod", "2", "2"], "{text}");
    setting.run(&["refresh", "admin"]);
    let version = format!("{target}/version");
    let next = |token: &str| {
        until(|| {
            let code = setting.at_socket(&AS_USER, &version);
            assert_eq!(code, "200");
            (setting.server.requests().last()?.token.as_deref() == Some(token)).then_some(())
        });
    };
    next("token-2");
    streams.are_open(setting, "two");

    setting.run(&["evict", "admin"]);
    streams.end();
    next("token-3");
    let mut streams = Streams::open(&bridge, &target);
    streams.are_open(setting, "three");

    setting.allow(&["list"]);
    streams.end();
    assert_eq!(setting.at_socket(&AS_USER, &version), "403");
}
