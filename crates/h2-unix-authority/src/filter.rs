//! Separates the header blocks of a connection from the bytes that pass unchanged.

use super::block::{self, CONTINUATION, HEAD, HEADERS, Head};

/// Maximum bytes of a header block, including its frame headers, to hold until it is complete. A larger block passes
/// unchanged, because the broker rejects it: the limit for the headers of a request is the same.
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

/// The result of one [`Filter::filter`] call.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Filtered {
    /// Number of bytes at the start that may pass.
    pub(super) ready: usize,
    /// End of the incomplete bytes after `ready`; the next call must begin with them. Bytes after the end are invalid.
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
    /// Filters `bytes` in place. Fewer than [`HELD`] bytes are not ready.
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
