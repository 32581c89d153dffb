//! Separates the header blocks of a connection from the bytes that pass unchanged, and rewrites their frames (RFC 9113,
//! sections 4.1, 6.2 and 6.10).

use std::{borrow::Cow, ops::Range};

use super::hpack;

/// Maximum bytes of a header block, including its frame headers, to hold until it is complete. A larger block passes
/// unchanged: 16 KiB is what hyper allows for the headers of a request by default.
pub(super) const HELD: usize = 16 * 1024;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The position of the next byte in the stream.
#[derive(Debug)]
pub(super) enum Filter {
    /// In the preface; holds the part that is missing.
    Preface(&'static [u8]),
    /// This many bytes before the next frame header.
    Frames(usize),
    /// The peer does not speak HTTP/2: all bytes pass.
    Foreign,
}

enum Next {
    Pass(usize),
    Block(usize),
    Unfinished,
}

impl Default for Filter {
    fn default() -> Self {
        Self::Preface(PREFACE)
    }
}

impl Filter {
    /// Filters `bytes` in place. Returns the number of bytes at the start that may pass, and the end of the incomplete ones,
    /// fewer than [`HELD`], which the next call must begin with. Bytes after the end are invalid.
    pub(super) fn filter(&mut self, bytes: &mut [u8]) -> (usize, usize) {
        let (mut ready, mut length) = (0, bytes.len());
        while let Some(rest) = bytes.get_mut(ready..length).filter(|rest| !rest.is_empty()) {
            match self.next(rest) {
                Next::Pass(count) => ready += count,
                Next::Block(count) => {
                    let kept = rewrite(rest.get_mut(..count).unwrap_or_default());
                    if kept < count {
                        rest.copy_within(count.., kept);
                        length -= count - kept;
                    }
                    ready += kept;
                }
                Next::Unfinished => break,
            }
        }
        (ready, length)
    }

    /// Decides about the first bytes; `bytes` is not empty.
    fn next(&mut self, bytes: &[u8]) -> Next {
        match self {
            Self::Foreign => Next::Pass(bytes.len()),
            Self::Preface(missing) => {
                let count = missing.len().min(bytes.len());
                let (expected, missing) = missing.split_at(count);
                *self = match bytes.get(..count) {
                    Some(said) if said != expected => Self::Foreign,
                    _ if missing.is_empty() => Self::Frames(0),
                    _ => Self::Preface(missing),
                };
                Next::Pass(count)
            }
            Self::Frames(0) => match frame(bytes) {
                Next::Pass(count) => {
                    *self = Self::Frames(count - count.min(bytes.len()));
                    Next::Pass(count.min(bytes.len()))
                }
                next => next,
            },
            Self::Frames(before) => {
                let count = (*before).min(bytes.len());
                *before -= count;
                Next::Pass(count)
            }
        }
    }
}

/// Decides about the frame or header block at the start of `bytes`. The length to pass may exceed `bytes`.
fn frame(bytes: &[u8]) -> Next {
    let Some(first) = Head::parse(bytes) else { return Next::Unfinished };
    if first.kind != HEADERS {
        return Next::Pass(HEAD + first.length);
    }
    let (mut head, mut end) = (first, HEAD + first.length);
    // Decides from frame headers only, so the result does not depend on how the bytes are split into reads.
    while head.flags & END_HEADERS == 0 {
        if end + HEAD > HELD {
            return Next::Pass(HEAD + first.length);
        }
        let Some(next) = bytes.get(end..).and_then(Head::parse) else { return Next::Unfinished };
        if next.kind != CONTINUATION || next.stream != first.stream {
            return Next::Pass(end); // h2 refuses the connection
        }
        (head, end) = (next, end + HEAD + next.length);
    }
    match bytes.len() {
        _ if end > HELD => Next::Pass(HEAD + first.length),
        length if length < end => Next::Unfinished,
        _ => Next::Block(end),
    }
}

/// Length of a frame header in bytes.
const HEAD: usize = 9;
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;

const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;

/// A frame header.
#[derive(Clone, Copy, Debug)]
struct Head {
    /// Length of the payload in bytes.
    length: usize,
    kind: u8,
    stream: [u8; 4],
    flags: u8,
}

impl Head {
    /// Parses the first bytes. `None`: there are fewer than [`HEAD`].
    fn parse(bytes: &[u8]) -> Option<Self> {
        let [high, middle, low, kind, flags, stream @ ..] = *bytes.first_chunk::<HEAD>()?;
        let length = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
        Some(Self { length, kind, stream, flags })
    }

    /// The position of the fields in the payload. `None`: the frame is too short for its padding or priority.
    fn fields(self, payload: &[u8]) -> Option<Range<usize>> {
        let (mut start, mut padding) = (0, 0);
        if self.kind == HEADERS && self.flags & PADDED != 0 {
            (start, padding) = (1, usize::from(*payload.first()?));
        }
        if self.kind == HEADERS && self.flags & PRIORITY != 0 {
            start += 5;
        }
        let end = payload.len().checked_sub(padding)?;
        (start <= end).then_some(start..end)
    }
}

/// Replaces each authority that h2 would refuse. `frames` is a HEADERS frame and the CONTINUATION frames that complete
/// it. Returns their new length in bytes, which never grows. A malformed block stays unchanged.
fn rewrite(frames: &mut [u8]) -> usize {
    let Some(mut block) = fields(frames) else { return frames.len() };
    let edits = hpack::refused(&block).unwrap_or_default();
    if edits.is_empty() {
        return frames.len();
    }
    // From last to first: an edit may be shorter than the bytes it replaces, which moves those behind it.
    for (place, bytes) in edits.into_iter().rev() {
        block.to_mut().splice(place, bytes);
    }
    let edited = reframed(frames, &block);
    if let Some(place) = frames.get_mut(..edited.len()) {
        place.copy_from_slice(&edited);
    }
    edited.len()
}

/// The fields of all `frames`, borrowed if there is only one frame. `None`: a frame is malformed.
fn fields(frames: &[u8]) -> Option<Cow<'_, [u8]>> {
    let mut block = Cow::Borrowed(<&[u8]>::default());
    for (head, payload) in split(frames) {
        let fields = payload.get(head.fields(payload)?)?;
        if block.is_empty() {
            block = Cow::Borrowed(fields);
        } else {
            block.to_mut().extend_from_slice(fields);
        }
    }
    Some(block)
}

/// Writes `block` into the same frames. Each frame keeps its share of the fields until the block ends.
fn reframed(frames: &[u8], mut block: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(frames.len());
    for (head, payload) in split(frames) {
        let range = head.fields(payload).unwrap_or_default();
        let (before, after) = (payload.get(..range.start), payload.get(range.end..));
        let (fields, rest) = block.split_at(range.len().min(block.len()));
        block = rest;
        let length = head.length - (range.len() - fields.len());
        let [_, high, middle, low] = u32::try_from(length).unwrap_or_default().to_be_bytes();
        bytes.extend([high, middle, low, head.kind, head.flags]);
        bytes.extend(head.stream);
        for part in [before.unwrap_or_default(), fields, after.unwrap_or_default()] {
            bytes.extend_from_slice(part);
        }
    }
    bytes
}

/// The headers and payloads of the complete frames.
fn split(mut frames: &[u8]) -> impl Iterator<Item = (Head, &[u8])> {
    std::iter::from_fn(move || {
        let head = Head::parse(frames)?;
        let (payload, rest) = frames.get(HEAD..)?.split_at_checked(head.length)?;
        frames = rest;
        Some((head, payload))
    })
}
