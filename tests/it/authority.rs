//! What clients send as the authority over a socket, in raw frames.

use std::time::Duration;

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::UnixStream,
    time::timeout,
};

use crate::harness::InProcess;

const HELLO: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 0x1;
const END_HEADERS: u8 = 0x4;
/// The newest entry of HPACK's dynamic table.
const FIRST: u8 = 62;

/// `/run/cb-rec/broker.sock` in HPACK's Huffman code.
const CODED: &[u8] =
    &[0x62, 0xcb, 0x6a, 0x60, 0x91, 0xad, 0x61, 0x48, 0xc4, 0x76, 0x1f, 0xa9, 0x6c, 0x5d, 0x07, 0x27, 0x5f];

#[tokio::test]
async fn a_request_may_have_any_authority() {
    let broker = InProcess::idle();
    let raw = |value: &[u8]| [&[u8::try_from(value.len()).unwrap()], value].concat();
    let values = [
        raw(b"localhost"),
        raw(b"/run/credbroker/credbroker.sock"),
        raw(b"run%2Fcredbroker%2Fcredbroker.sock"),
        raw(b"C:\\run:1:2"),
        raw("/run/brök".as_bytes()),
        [&[0x80 | u8::try_from(CODED.len()).unwrap()], CODED].concat(),
        vec![0x86, 0xff, 0xfe, 0x1f, 0xff, 0xf6, 0x3f], // a backslash and a control character: shorter afterwards
    ];
    for value in values {
        for piece in [1, 1000] {
            let mut peer = Peer::connect(&broker).await;
            // The first literal goes into the dynamic table, the second request takes it from there.
            for (stream, authority) in [(1, [&[0x41][..], &value].concat()), (3, vec![0x80 | FIRST])] {
                let requested = check(&authority);
                let (first, rest) = requested.split_at(requested.len() / 2);
                let bytes = [
                    frame(HEADERS, 0, stream, first),
                    frame(CONTINUATION, END_HEADERS, stream, rest),
                    frame(DATA, END_STREAM, stream, &[0; 5]),
                ];
                for chunk in bytes.concat().chunks(piece) {
                    peer.0.write_all(chunk).await.unwrap();
                }
                peer.is_answered(stream, &value).await;
            }
        }
    }
}

/// A health check's header block. Nothing behind the authority goes into the dynamic table.
fn check(authority: &[u8]) -> Vec<u8> {
    let path = b"\x04\x1c/grpc.health.v1.Health/Check";
    let kind = b"\x0f\x10\x10application/grpc";
    [authority, &[0x83, 0x86], path, kind, b"\0\x02te\x08trailers"].concat()
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

struct Peer(UnixStream);

impl Peer {
    async fn connect(broker: &InProcess) -> Self {
        let mut stream = UnixStream::connect(broker.socket()).await.unwrap();
        stream.write_all(HELLO).await.unwrap();
        Self(stream)
    }

    /// The stream ends with trailers, and nothing is reset.
    async fn is_answered(&mut self, stream: u32, authority: &[u8]) {
        let mut messages = 0;
        loop {
            let (kind, flags, of) =
                timeout(Duration::from_secs(20), self.frame()).await.expect("an answer in time");
            assert!(![3, 7].contains(&kind), "reset or closed for {authority:x?}");
            messages += usize::from(of == stream && kind == DATA);
            if of == stream && kind == HEADERS && flags & END_STREAM != 0 {
                assert_eq!(messages, 1, "for {authority:x?}");
                return;
            }
        }
    }

    async fn frame(&mut self) -> (u8, u8, u32) {
        let mut head = [0; 9];
        self.0.read_exact(&mut head).await.unwrap();
        let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
        self.0.read_exact(&mut vec![0; length]).await.unwrap();
        (head[3], head[4], u32::from_be_bytes([head[5], head[6], head[7], head[8]]))
    }
}
