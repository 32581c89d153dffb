//! What no program must read in two ways is refused: each request as bytes on the socket.

use std::{
    io::{Read as _, Write as _},
    os::unix::net::UnixStream,
};

use super::setting::{AGES, PODS, Setting, can_run, until};

/// The codes of the first `count` answers to these bytes.
fn codes(setting: &Setting, bytes: &str, count: usize) -> String {
    let mut stream = UnixStream::connect(setting.socket()).unwrap();
    stream.set_read_timeout(Some(AGES)).unwrap();
    stream.write_all(bytes.as_bytes()).unwrap();
    let (mut answers, mut part) = (String::new(), [0; 4096]);
    loop {
        let codes: Vec<_> = answers.split("HTTP/1.").filter_map(|answer| code(answer)).collect();
        if codes.len() >= count {
            return codes.join(" ");
        }
        match stream.read(&mut part) {
            Ok(0) | Err(_) => return codes.join(" "),
            Ok(read) => answers.push_str(&String::from_utf8_lossy(&part[..read])),
        }
    }
}

/// The code in what follows `HTTP/1.`, if that is a status line.
fn code(answer: &str) -> Option<&str> {
    let code = answer.get(1..)?.strip_prefix(' ')?.get(..3)?;
    code.bytes().all(|byte| byte.is_ascii_digit()).then_some(code)
}

#[test]
fn each_refusal_as_bytes_and_nothing_is_forwarded() {
    if !can_run(&["setpriv", "curl"]) {
        return;
    }
    let setting = Setting::start();
    let target = setting.target();
    let pods = format!("{target}{PODS}");
    let host = "Host: localhost\r\n";
    let get = |path: &str, headers: &str| format!("GET {path} HTTP/1.1\r\n{host}{headers}\r\n");
    let below = |rest: &str| get(&format!("{target}{rest}"), "");
    let post = |headers: &str, body: &str| format!("POST {pods} HTTP/1.1\r\n{host}{headers}\r\n{body}");
    let both = "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n";
    let reversed = "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n";
    let last = "0\r\n\r\n";
    let rows = [
        // Two lengths, also behind a request that is not refused for itself.
        (post(both, last), "400"),
        (post(reversed, last), "400"),
        (post("Content-Length: 2\r\nContent-Length: 2\r\n", "{}"), "400"),
        (post("Content-Length: 2\r\nContent-Length: 3\r\n", "{}"), "400"),
        (post("Content-Length: 2, 2\r\n", "{}"), "400"),
        (post("Content-Length: +2\r\n", "{}"), "400"),
        (post("Transfer-Encoding: gzip, chunked\r\n", last), "400"),
        (post("Transfer-Encoding: chunked, identity\r\n", last), "400"),
        (post("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", last), "400"),
        (format!("{}{}", get("/contexts/none-0123456789ab/api", ""), post(both, last)), "403 400"),
        // The target of the request.
        (get(&format!("http://localhost{pods}"), ""), "400"),
        (get(&format!("{pods}#fragment"), ""), "400"),
        ("CONNECT localhost:443 HTTP/1.1\r\nHost: localhost:443\r\n\r\n".to_owned(), "405"),
        (format!("TRACE {pods} HTTP/1.1\r\n{host}\r\n"), "405"),
        (format!("OPTIONS {pods} HTTP/1.1\r\n{host}\r\n"), "405"),
        (format!("OPTIONS * HTTP/1.1\r\n{host}\r\n"), "405"),
        (format!("GET * HTTP/1.1\r\n{host}\r\n"), "400"),
        (format!("GET {pods} HTTP/1.0\r\n{host}\r\n"), "400"),
        (below("/api//v1/pods"), "400"),
        (below("//api/v1/pods"), "400"),
        (below("/api/v1/../../../clusters"), "400"),
        (below("/api/v1/."), "400"),
        (below("/api/v1/%2e%2e/pods"), "400"),
        (below("/api/v1/namespaces/a%2Fb/pods"), "400"),
        (below("/api/v1/namespaces/a%2fb/pods"), "400"),
        (below("/api/v1/namespaces/a%252fb/pods"), "400"),
        (below("/api/v1/namespaces/a%00b/pods"), "400"),
        (below("/api/v1/namespaces/a%0Ab/pods"), "400"),
        (below("/api/v1/namespaces/a%ffb/pods"), "400"),
        (below("/api/v1/namespaces/a%zzb/pods"), "400"),
        (below("/api/v1/namespaces/a\u{1}b/pods"), "400"),
        // The query.
        (below("/api/v1/pods?watch=true&watch=false"), "400"),
        (below("/api/v1/pods?dryRun=All&dryRun="), "400"),
        (below("/api/v1/pods?fieldSelector=a&fieldSelector=b"), "400"),
        (below("/api/v1/pods?limit=1;watch=true"), "400"),
        (below("/api/v1/pods?limit=%zz"), "400"),
        // Who sends it.
        (format!("GET {pods} HTTP/1.1\r\n\r\n"), "400"),
        (format!("GET {pods} HTTP/1.1\r\n{host}{host}\r\n"), "400"),
        (format!("GET {pods} HTTP/1.1\r\nHost: rebound.example\r\n\r\n"), "421"),
        (get(&pods, "Origin: http://localhost\r\n"), "403"),
        (get(&pods, "Origin: null\r\n"), "403"),
        (get(&pods, "Sec-Fetch-Site: same-origin\r\n"), "403"),
        (get(&pods, "Impersonate-User: system:admin\r\n"), "403"),
        (get(&pods, "impersonate_group: system:masters\r\n"), "403"),
        (get(&pods, "Impersonate-Extra-scopes: all\r\n"), "403"),
        // What the connection becomes.
        (get(&pods, "Connection: Upgrade\r\nUpgrade: tls/1.0\r\n"), "400"),
        (get(&pods, "Connection: Upgrade\r\nUpgrade: websocket\r\nTransfer-Encoding: chunked\r\n"), "400"),
    ];
    let wrong: Vec<_> = rows
        .iter()
        .map(|(bytes, expected)| (bytes, codes(&setting, bytes, expected.split(' ').count()), *expected))
        .filter(|(_, got, expected)| got != expected)
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(setting.server.requests().is_empty(), "{:?}", setting.server.requests());
    // So the refusals are not for another reason.
    assert_eq!(codes(&setting, &get(&pods, ""), 1), "200");
    until(|| (setting.server.requests().len() == 1).then_some(()));
}
