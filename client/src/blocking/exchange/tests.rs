use std::{io::Read, net::Shutdown, os::fd::OwnedFd, thread, time::Duration};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::{super::timeouts::Timeouts, *};

const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];
const ACKNOWLEDGEMENT: &[u8] = &[0, 0, 0, 4, 1, 0, 0, 0, 0];
const LONG: Duration = Duration::from_secs(600);

/// Two sockets on which each read returns the bytes of one write. Ours does not block.
fn pair() -> (UnixStream, UnixStream) {
    let flags = SocketFlags::CLOEXEC;
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
    let [ours, theirs] = [ours, theirs].map(|socket: OwnedFd| UnixStream::from(socket));
    ours.set_nonblocking(true).unwrap();
    (ours, theirs)
}

fn written(theirs: &mut UnixStream) -> Vec<u8> {
    let mut bytes = vec![0; 64 * 1024];
    let count = theirs.read(&mut bytes).unwrap();
    bytes.truncate(count);
    bytes
}

fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
    let length = u8::try_from(payload.len()).unwrap();
    [&[0, 0, length, kind, flags, 0, 0, 0, 1], payload].concat()
}

/// HEADERS with `:status: 200`, DATA, and HEADERS with `grpc-status: 0`.
fn answer(body: &[u8]) -> Vec<u8> {
    let trailers = [b"\x00\x0bgrpc-status", &b"\x010"[..]].concat();
    [frame(1, 4, &[0x88]), frame(0, 0, body), frame(1, 4 | 1, &trailers)].concat()
}

fn send(theirs: &UnixStream, bytes: &[u8]) {
    assert_eq!(rustix::io::write(theirs, bytes), Ok(bytes.len()));
}

fn asked(ours: UnixStream) -> thread::JoinHandle<Result<RawResponse, ExchangeError>> {
    let message = Bytes::from_static(b"\0\0\0\0\x03abc");
    thread::spawn(move || {
        let mut deadline = Deadline::starting_now(Timeouts::default().total(LONG), None);
        exchange(&ours, Call::Get(message, None), &mut deadline, &|| false)
    })
}

#[test]
fn the_whole_request_is_one_write_and_the_response_needs_no_other() {
    let (ours, mut theirs) = pair();
    let asking = asked(ours);
    let request = written(&mut theirs);
    assert!(request.starts_with(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), "{request:?}");
    assert!(request.ends_with(&frame(0, 1, b"\0\0\0\0\x03abc")), "{request:?}");
    send(&theirs, &[SETTINGS, ACKNOWLEDGEMENT, &answer(b"body")].concat());
    let answer = asking.join().unwrap().unwrap();
    assert_eq!((answer.http_status, answer.body.as_slice()), (200, &b"body"[..]));
    assert_eq!(answer.trailers.unwrap()["grpc-status"], "0");
    assert!(written(&mut theirs).is_empty(), "nothing but the end");
}

#[test]
fn the_servers_settings_are_acknowledged_when_the_answer_takes_long() {
    let (ours, mut theirs) = pair();
    let asking = asked(ours);
    written(&mut theirs);
    send(&theirs, SETTINGS);
    assert_eq!(written(&mut theirs), ACKNOWLEDGEMENT);
    for part in answer(b"in pieces").chunks(3) {
        send(&theirs, part);
    }
    assert_eq!(asking.join().unwrap().unwrap().body, b"in pieces");
}

#[test]
fn an_end_before_the_answer_is_a_lost_connection() {
    for sent in [&b""[..], SETTINGS, &answer(b"body")[..20]] {
        let (ours, mut theirs) = pair();
        let asking = asked(ours);
        written(&mut theirs);
        if !sent.is_empty() {
            send(&theirs, sent);
        }
        theirs.shutdown(Shutdown::Both).unwrap();
        let ended = asking.join().unwrap();
        assert!(matches!(ended, Err(ExchangeError::Lost(_))), "{sent:?}: {ended:?}");
    }
}
