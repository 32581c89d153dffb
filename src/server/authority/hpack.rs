//! The representations of a header block (RFC 7541, sections 5 and 6), walked without a table.

use std::{borrow::Cow, ops::Range};

use http::uri::Authority;

use super::huffman;

/// `:authority` in the static table.
const AUTHORITY: usize = 1;
const NAME: &[u8] = b":authority";
/// The same Huffman-coded.
const CODED_NAME: &[u8] = &[0xb8, 0x3b, 0x53, 0x39, 0xec, 0x32, 0x7d, 0x7f];
/// As many bytes has an integer at most: h2 accepts no longer ones.
const INTEGER: u32 = 5;

/// Bytes of a header block that are to be replaced.
#[derive(Debug)]
pub(super) struct Edit {
    pub(super) place: Range<usize>,
    /// As many or fewer.
    pub(super) bytes: Vec<u8>,
}

/// What to replace in `block`, in order, so that h2 accepts each literal authority. `None`: the block is malformed.
pub(super) fn refused(block: &[u8]) -> Option<Vec<Edit>> {
    let mut edits = Vec::new();
    let mut cursor = BlockReader { block, at: 0 };
    while let Some(&first) = block.get(cursor.at) {
        let prefix = match first {
            0x80.. => {
                cursor.integer(7)?; // indexed: name and value are in the table
                continue;
            }
            0x40.. => 6, // with incremental indexing
            0x20.. => {
                cursor.integer(5)?; // the size of the dynamic table
                continue;
            }
            _ => 4, // without indexing, or never indexed
        };
        let named = match cursor.integer(prefix)? {
            0 => cursor.string()?.is_authority(),
            index => index == AUTHORITY,
        };
        let start = cursor.at;
        let value = cursor.string()?;
        if named {
            edits.extend(value.refused()?.map(|bytes| value.edit(start..cursor.at, bytes)));
        }
    }
    Some(edits)
}

struct BlockReader<'a> {
    block: &'a [u8],
    at: usize,
}

impl<'a> BlockReader<'a> {
    fn byte(&mut self) -> Option<u8> {
        let byte = self.block.get(self.at)?;
        self.at += 1;
        Some(*byte)
    }

    /// An integer whose first byte has `prefix` bits of it.
    fn integer(&mut self, prefix: u32) -> Option<usize> {
        let most = 0xff >> (8 - prefix);
        let mut value = usize::from(self.byte()? & most);
        if value < usize::from(most) {
            return Some(value);
        }
        for shift in (0..INTEGER - 1).map(|byte| 7 * byte) {
            let byte = self.byte()?;
            value += usize::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn string(&mut self) -> Option<HpackString<'a>> {
        let coded = self.block.get(self.at)? & 0x80 != 0;
        let length = self.integer(7)?;
        let data = self.block.get(self.at..)?.get(..length)?;
        self.at += length;
        Some(HpackString { coded, data })
    }
}

/// A name or a value as it is sent.
struct HpackString<'a> {
    /// Huffman-coded.
    coded: bool,
    data: &'a [u8],
}

impl HpackString<'_> {
    fn is_authority(&self) -> bool {
        self.data == if self.coded { CODED_NAME } else { NAME }
    }

    /// What to send in place of this authority, if h2 refuses it: as many bytes or fewer, and as many when they are
    /// decoded. `None`: the coding is malformed.
    #[expect(clippy::option_option, reason = "`?` ends the walk of a malformed block")]
    fn refused(&self) -> Option<Option<Vec<u8>>> {
        let value =
            if self.coded { Cow::Owned(huffman::decode(self.data)?) } else { Cow::Borrowed(self.data) };
        if value.is_empty() || Authority::try_from(&*value).is_ok() {
            return Some(None);
        }
        let harmless: Vec<_> = value.iter().copied().map(harmless).collect();
        Some(Some(if self.coded { huffman::encode(&harmless) } else { harmless }))
    }

    /// `data` for this text, which is at `place` with its length.
    fn edit(&self, place: Range<usize>, data: Vec<u8>) -> Edit {
        if data.len() == self.data.len() {
            return Edit { place: place.end - data.len()..place.end, bytes: data };
        }
        let mut bytes = length(self.coded, data.len());
        bytes.extend(data);
        Edit { place, bytes }
    }
}

/// The length of a text, with the bit that says whether it is Huffman-coded.
fn length(coded: bool, length: usize) -> Vec<u8> {
    let flag = if coded { 0x80 } else { 0 };
    let Some(mut rest) = length.checked_sub(0x7f) else {
        return vec![flag | length.to_le_bytes()[0]];
    };
    let mut bytes = vec![flag | 0x7f];
    while rest >= 0x80 {
        bytes.push(rest.to_le_bytes()[0] | 0x80);
        rest >>= 7;
    }
    bytes.push(rest.to_le_bytes()[0]);
    bytes
}

/// `byte`, or in its place one that `http` accepts anywhere in an authority: with a Huffman code of the same length
/// where there is one, else with a shorter code.
fn harmless(byte: u8) -> u8 {
    match byte {
        _ if byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=".contains(&byte) => byte,
        b':' => b'x',
        b'"' | b'?' => b'!',
        b'|' => b'+',
        0 | b'@' | b'[' | b']' => b'~',
        _ => b'-',
    }
}
