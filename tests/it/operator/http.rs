//! A client of the metrics listener.

use std::{
    io::{Read, Write},
    net::TcpStream,
    os::unix::net::UnixStream,
    path::Path,
};

/// Status and body of an answer over a Unix socket.
pub(super) fn get(socket: &Path, path: &str) -> (u16, String) {
    exchange(
        UnixStream::connect(socket).unwrap(),
        &format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"),
    )
}

/// The same over TCP, with this Host header.
pub(super) fn get_tcp(address: &str, host: &str, path: &str) -> (u16, String) {
    exchange(TcpStream::connect(address).unwrap(), &format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"))
}

pub(super) fn exchange(mut stream: impl Read + Write, request: &str) -> (u16, String) {
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}
