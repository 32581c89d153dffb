//! A header block in its frames (RFC 9113, sections 4.1, 6.2 and 6.10).

use std::{borrow::Cow, ops::Range};

use super::hpack;

/// Bytes of a frame's head.
pub(super) const HEAD: usize = 9;
pub(super) const HEADERS: u8 = 1;
pub(super) const CONTINUATION: u8 = 9;

const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;

/// The head of a frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    /// Of the payload.
    pub(super) length: usize,
    pub(super) kind: u8,
    pub(super) stream: [u8; 4],
    flags: u8,
}

impl Head {
    /// `None`: these are fewer than [`HEAD`] bytes.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let [high, middle, low, kind, flags, stream @ ..] = *bytes.first_chunk::<HEAD>()?;
        let length = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
        Some(Self { length, kind, stream, flags })
    }

    pub(super) fn ends_block(self) -> bool {
        self.flags & END_HEADERS != 0
    }

    /// Where the fields are in this frame. `None`: the padding is longer than the frame.
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

/// Replaces each authority that h2 would refuse in `frames`, a HEADERS frame and the CONTINUATION frames that complete
/// it. Returns how many bytes the frames have now: never more than before. A malformed block stays as it is.
pub(super) fn rewrite(frames: &mut [u8]) -> usize {
    let Some(mut block) = fields(frames) else { return frames.len() };
    let edits = hpack::refused(&block).unwrap_or_default();
    if edits.is_empty() {
        return frames.len();
    }
    // From the last to the first: an edit may be shorter than what it replaces.
    for edit in edits.into_iter().rev() {
        block.to_mut().splice(edit.place, edit.bytes);
    }
    let edited = reframed(frames, &block);
    if let Some(place) = frames.get_mut(..edited.len()) {
        place.copy_from_slice(&edited);
    }
    edited.len()
}

/// The fields of all `frames`: without a copy if there is one frame only. `None`: malformed.
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

/// `block` in the same frames: each has as many fields as before until the block ends.
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

/// Heads and payloads of whole frames.
fn split(mut frames: &[u8]) -> impl Iterator<Item = (Head, &[u8])> {
    std::iter::from_fn(move || {
        let head = Head::parse(frames)?;
        let (payload, rest) = frames.get(HEAD..)?.split_at_checked(head.length)?;
        frames = rest;
        Some((head, payload))
    })
}
