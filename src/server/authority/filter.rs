//! The frames of a connection: which bytes pass as they are, and which are a header block.

use super::block::{self, CONTINUATION, HEAD, HEADERS, Head};

/// Bytes of a header block, the heads of its frames included, that are held until it is complete. A larger one passes
/// as it is: the broker's limit for the fields of a request is the same.
pub(super) const HELD: usize = 16 * 1024;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Where in the stream the next byte is.
#[derive(Debug)]
pub(super) enum Filter {
    /// What remains of the preface.
    Preface(&'static [u8]),
    /// So many bytes before the head of a frame.
    Frames(usize),
    /// The peer does not speak HTTP/2: everything passes.
    Foreign,
}

/// What became of the bytes that a [`Filter`] was given.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Filtered {
    /// So many bytes from the first on may pass.
    pub(super) ready: usize,
    /// The bytes from `ready` to here are unfinished: they come first in the next call. Those behind are void.
    pub(super) length: usize,
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
    /// Filters `bytes` in place. What is not ready is less than [`HELD`].
    pub(super) fn filter(&mut self, bytes: &mut [u8]) -> Filtered {
        let (mut ready, mut length) = (0, bytes.len());
        while let Some(rest) = bytes.get_mut(ready..length).filter(|rest| !rest.is_empty()) {
            match self.next(rest) {
                Next::Pass(count) => ready += count,
                Next::Block(count) => {
                    let kept = block::rewrite(rest.get_mut(..count).unwrap_or_default());
                    if kept < count {
                        rest.copy_within(count.., kept);
                        length -= count - kept;
                    }
                    ready += kept;
                }
                Next::Unfinished => break,
            }
        }
        Filtered { ready, length }
    }

    /// What the first bytes are; `bytes` is not empty.
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

/// The frame that begins here, or the frames of a header block. What passes may be longer than `bytes`.
fn frame(bytes: &[u8]) -> Next {
    let Some(first) = Head::parse(bytes) else { return Next::Unfinished };
    if first.kind != HEADERS {
        return Next::Pass(HEAD + first.length);
    }
    let (mut head, mut end) = (first, HEAD + first.length);
    // Only the heads decide, not how many bytes are there: the outcome is the same however a peer's bytes arrive.
    while !head.ends_block() {
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
