//! Reads and rewrites the frames of a header block (RFC 9113, sections 4.1, 6.2 and 6.10).

use std::{borrow::Cow, ops::Range};

use super::hpack;

/// Length of a frame header in bytes.
pub(super) const HEAD: usize = 9;
pub(super) const HEADERS: u8 = 1;
pub(super) const CONTINUATION: u8 = 9;

const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;

/// A frame header.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    /// Length of the payload in bytes.
    pub(super) length: usize,
    pub(super) kind: u8,
    pub(super) stream: [u8; 4],
    flags: u8,
}

impl Head {
    /// Parses the first bytes. `None`: there are fewer than [`HEAD`].
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let [high, middle, low, kind, flags, stream @ ..] = *bytes.first_chunk::<HEAD>()?;
        let length = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
        Some(Self { length, kind, stream, flags })
    }

    pub(super) fn ends_block(self) -> bool {
        self.flags & END_HEADERS != 0
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
pub(super) fn rewrite(frames: &mut [u8]) -> usize {
    let Some(mut block) = fields(frames) else { return frames.len() };
    let edits = hpack::refused(&block).unwrap_or_default();
    if edits.is_empty() {
        return frames.len();
    }
    // From last to first: an edit may be shorter than the bytes it replaces, which moves those behind it.
    for edit in edits.into_iter().rev() {
        block.to_mut().splice(edit.place, edit.bytes);
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
