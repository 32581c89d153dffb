//! Properties of the filter for any bytes in any chunks, shared by the tests and the fuzz target.

use http::uri::Authority;
use loona_hpack::Decoder;

use super::frames::{Filter, HELD};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const HEAD: usize = 9;
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;

/// Filters `bytes` in chunks whose sizes cycle through `sizes`.
pub(super) fn filtered(bytes: &[u8], sizes: &[usize]) -> Vec<u8> {
    let (mut filter, mut held, mut passed) = (Filter::default(), Vec::new(), Vec::new());
    let (mut rest, mut sizes) = (bytes, sizes.iter().cycle());
    while !rest.is_empty() {
        let size = sizes.next().map_or(rest.len(), |size| (*size).clamp(1, rest.len()));
        let (chunk, after) = rest.split_at(size);
        rest = after;
        held.extend_from_slice(chunk);
        let (ready, length) = filter.filter(&mut held);
        held.truncate(length);
        passed.extend(held.drain(..ready));
        assert!(held.len() < HELD, "{} bytes are held", held.len());
    }
    passed.extend(held);
    passed
}

/// Checks that the chunks do not matter, and that each refused authority becomes an accepted one of the same length,
/// and all other bytes stay unchanged.
pub(super) fn check(bytes: &[u8], sizes: &[usize]) {
    let after = filtered(bytes, &[]);
    assert_eq!(after, filtered(bytes, sizes), "chunks of {sizes:?}");
    if !bytes.starts_with(PREFACE) {
        assert_eq!(after, bytes);
        return;
    }
    let (before, unfinished) = frames(&bytes[PREFACE.len()..]);
    let (after, rest) = frames(after.strip_prefix(PREFACE).unwrap());
    assert_eq!(unfinished, rest, "what is unfinished passes as it is");
    assert_eq!(before.len(), after.len());
    // The dynamic tables of both sides, compared until the first decoding error: h2 ends the connection there.
    let mut decoders = Some((Decoder::new(), Decoder::new()));
    let mut at = 0;
    while at < before.len() {
        let count = block(&before[at..]);
        for (before, after) in before[at..].iter().zip(&after[at..]).take(count.max(1)) {
            assert_eq!(before.outside(), after.outside());
            assert!(count > 0 || before.payload == after.payload, "only header blocks are changed");
            assert!(before.payload.len() >= after.payload.len());
        }
        if let (1.., Some((theirs, ours))) = (count, &mut decoders) {
            let decoded = theirs.decode(&fields(&before[at..at + count]));
            match (decoded, ours.decode(&fields(&after[at..at + count]))) {
                (Ok(before), Ok(after)) => compare(&before, &after),
                (before, after) => {
                    assert_eq!(before.is_ok(), after.is_ok());
                    decoders = None;
                }
            }
        }
        at += count.max(1);
    }
}

type HeaderList = [(Vec<u8>, Vec<u8>)];

fn compare(before: &HeaderList, after: &HeaderList) {
    assert_eq!(before.len(), after.len());
    for ((name, before), (also, after)) in before.iter().zip(after) {
        assert_eq!(name, also);
        if before != after {
            assert_eq!(name, b":authority");
            assert_eq!(before.len(), after.len());
            assert!(!accepted(before) && accepted(after));
        }
    }
}

pub(super) fn accepted(authority: &[u8]) -> bool {
    Authority::try_from(authority).is_ok()
}

#[derive(Debug)]
pub(super) struct Frame<'a> {
    head: &'a [u8],
    payload: &'a [u8],
}

impl Frame<'_> {
    fn kind(&self) -> u8 {
        self.head[3]
    }

    fn is(&self, flag: u8) -> bool {
        self.head[4] & flag != 0
    }

    /// Number of bytes before and after the fields. `None`: the frame is malformed.
    fn margins(&self) -> Option<(usize, usize)> {
        if self.kind() != HEADERS {
            return Some((0, 0));
        }
        let padding = if self.is(0x8) { usize::from(*self.payload.first()?) } else { 0 };
        let before = usize::from(self.is(0x8)) + if self.is(0x20) { 5 } else { 0 };
        (before + padding <= self.payload.len()).then_some((before, padding))
    }

    /// Everything except the length and the fields.
    fn outside(&self) -> (&[u8], &[u8], &[u8]) {
        let Some((before, after)) = self.margins() else { return (&self.head[3..], self.payload, &[]) };
        (&self.head[3..], &self.payload[..before], &self.payload[self.payload.len() - after..])
    }
}

/// The complete frames of `bytes`, and the rest.
pub(super) fn frames(mut bytes: &[u8]) -> (Vec<Frame<'_>>, &[u8]) {
    let mut frames = Vec::new();
    while let Some((head, rest)) = bytes.split_at_checked(HEAD) {
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let Some((payload, rest)) = rest.split_at_checked(length) else { break };
        frames.push(Frame { head, payload });
        bytes = rest;
    }
    (frames, bytes)
}

/// Number of frames in the header block at the start, or 0 if it is incomplete or malformed.
pub(super) fn block(frames: &[Frame<'_>]) -> usize {
    if frames[0].kind() != HEADERS {
        return 0;
    }
    for (index, frame) in frames.iter().enumerate() {
        let continues = frame.kind() == CONTINUATION && frame.head[5..] == frames[0].head[5..];
        if frame.margins().is_none() || index > 0 && !continues {
            return 0;
        }
        if frame.is(0x4) {
            return index + 1;
        }
    }
    0
}

pub(super) fn fields(frames: &[Frame<'_>]) -> Vec<u8> {
    let fields = |frame: &Frame<'_>| {
        let (before, after) = frame.margins().unwrap();
        frame.payload[before..frame.payload.len() - after].to_vec()
    };
    frames.iter().flat_map(fields).collect()
}
