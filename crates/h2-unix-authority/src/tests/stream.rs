//! The filter on a stream: reads and writes of any size.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

use super::{
    super::{AuthorityFilter, property::filtered},
    wire::{HELLO, authority, frame, framed, headers},
};

/// A connection with all kinds of frames that ends within a header block.
fn connection() -> Vec<u8> {
    let path = authority(b"/run/broker.sock", true);
    let mut bytes = [
        HELLO,
        &headers(&path),
        &frame(0, 0, &vec![0xff; 20_000]),
        &framed(&[path.clone(), authority(b"\x01\xff", true)].concat(), &[3, 5], Some(30), true),
        &frame(0, 1, b"x"),
        &headers(&authority(&[b'/'; 9000], false)),
        &headers(&authority(&vec![b'/'; 20_000], false)),
        &headers(&path),
    ]
    .concat();
    bytes.truncate(bytes.len() - 2);
    bytes
}

#[tokio::test]
async fn a_stream_gives_the_same_however_it_is_written_and_read() {
    let (bytes, expected) = (connection(), filtered(&connection(), &[]));
    assert_ne!(bytes, expected);
    for (written, read) in [(1, 1), (1, 9000), (7, 3), (100, 13), (5000, 8192), (60_000, 1), (60_000, 60_000)]
    {
        let (mut peer, ours) = duplex(written);
        let bytes = bytes.clone();
        let writing = async move {
            peer.write_all(&bytes).await.unwrap();
            drop(peer);
        };
        let reading = async move {
            let (mut ours, mut all, mut buffer) = (AuthorityFilter::new(ours), Vec::new(), vec![0; read]);
            loop {
                let count = ours.read(&mut buffer).await.unwrap();
                if count == 0 {
                    break (all, ours.held.capacity());
                }
                all.extend_from_slice(&buffer[..count]);
            }
        };
        let ((), (all, capacity)) = tokio::join!(writing, reading);
        assert!(all == expected, "written by {written}, read by {read}");
        assert_eq!(capacity, 0, "nothing is kept");
    }
}

/// A complete frame passes immediately: the peer may wait for h2's answer before it sends more.
#[tokio::test]
async fn nothing_complete_waits_for_what_is_not() {
    let (mut peer, ours) = duplex(64 * 1024);
    let mut ours = AuthorityFilter::new(ours);
    let block = headers(&authority(b"/run/broker.sock", false));
    let first = [HELLO, &block, &block[..12]].concat();
    peer.write_all(&first).await.unwrap();
    let mut complete = vec![0; 4096];
    let count = ours.read(&mut complete).await.unwrap();
    complete.truncate(count);
    assert_eq!(complete, filtered(&first[..HELLO.len() + block.len()], &[]));
    assert_eq!(ours.held, block[..12]);
    peer.write_all(&block[12..]).await.unwrap();
    let mut rest = vec![0; block.len()];
    ours.read_exact(&mut rest).await.unwrap();
    assert_eq!(rest, complete[HELLO.len()..]);
}

#[tokio::test]
async fn what_is_held_has_a_limit() {
    let (mut peer, ours) = duplex(64 * 1024);
    let mut ours = AuthorityFilter::new(ours);
    peer.write_all(HELLO).await.unwrap();
    ours.read_exact(&mut vec![0; HELLO.len()]).await.unwrap();
    // A block that never ends, in empty frames.
    let endless = frame(1, 0, &[]).iter().copied().chain(frame(9, 0, &[]).repeat(1900)).collect::<Vec<_>>();
    let mut byte = [0];
    tokio::select! {
        biased;
        _ = ours.read_exact(&mut byte) => panic!("nothing is complete"),
        sent = peer.write_all(&endless[..16_000]) => sent.unwrap(),
    }
    tokio::select! {
        biased;
        _ = ours.read_exact(&mut byte) => panic!("nothing is complete"),
        () = tokio::task::yield_now() => {}
    }
    assert_eq!(ours.held.len(), 16_000);
    assert!(ours.held.capacity() <= 16 * 1024);
    peer.write_all(&endless[16_000..]).await.unwrap();
    let mut all = vec![0; endless.len()];
    ours.read_exact(&mut all).await.unwrap();
    assert_eq!(all, endless);
}
