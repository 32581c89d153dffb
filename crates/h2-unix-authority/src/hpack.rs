//! Finds `:authority` in a header block (RFC 7541, sections 5 and 6) without keeping a dynamic table.

use std::{borrow::Cow, ops::Range};

use http::uri::Authority;

use super::huffman;

/// Index of `:authority` in the static table.
const AUTHORITY: usize = 1;
const NAME: &[u8] = b":authority";
/// [`NAME`], Huffman-coded.
const CODED_NAME: &[u8] = &[0xb8, 0x3b, 0x53, 0x39, 0xec, 0x32, 0x7d, 0x7f];
/// Maximum length of an integer in bytes. h2 rejects longer ones.
const INTEGER: u32 = 5;

/// A replacement of bytes in a header block.
#[derive(Debug)]
pub(super) struct Edit {
    pub(super) place: Range<usize>,
    /// The new bytes, never more than `place` has.
    pub(super) bytes: Vec<u8>,
}

/// The edits, in order, that make h2 accept each literal authority in `block`. `None`: the block is malformed.
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

    /// Reads an integer that begins in the low `prefix` bits of the next byte.
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

/// An encoded name or value.
struct HpackString<'a> {
    /// Whether `data` is Huffman-coded.
    coded: bool,
    data: &'a [u8],
}

impl HpackString<'_> {
    fn is_authority(&self) -> bool {
        self.data == if self.coded { CODED_NAME } else { NAME }
    }

    /// The replacement of this authority if h2 refuses it: of the same decoded length, and not longer when encoded.
    /// `None`: the encoding is malformed.
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

    /// Replaces this string with `data`. `place` covers its length and its bytes.
    fn edit(&self, place: Range<usize>, data: Vec<u8>) -> Edit {
        if data.len() == self.data.len() {
            return Edit { place: place.end - data.len()..place.end, bytes: data };
        }
        let mut bytes = length(self.coded, data.len());
        bytes.extend(data);
        Edit { place, bytes }
    }
}

/// Encodes the length of a string, with the Huffman flag.
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

/// `byte`, or a replacement that `http` accepts anywhere in an authority. The replacement's Huffman code has the same
/// length if such a byte exists, and is shorter otherwise.
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
