//! Finds `:authority` in a header block (RFC 7541, sections 5 and 6) without keeping a dynamic table.
//!
//! The Huffman code (section 5.2 and appendix B) is canonical: a longer code is greater than a shorter one, and among codes
//! of one length, the order is that of the symbols. The lengths therefore define all codes.

use std::{borrow::Cow, ops::Range};

use http::uri::Authority;

/// Index of `:authority` in the static table.
const AUTHORITY: usize = 1;
const NAME: &[u8] = b":authority";
/// [`NAME`], Huffman-coded.
const CODED_NAME: &[u8] = &[0xb8, 0x3b, 0x53, 0x39, 0xec, 0x32, 0x7d, 0x7f];
/// Maximum length of an integer in bytes. h2 rejects longer ones.
const INTEGER: u32 = 5;

/// The places, in order, of the literal authorities in `block` that h2 refuses, each with the bytes that replace it, never
/// more than are there. `None`: the block is malformed.
pub(super) fn refused(block: &[u8]) -> Option<Vec<(Range<usize>, Vec<u8>)>> {
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
            edits.extend(value.refused()?.map(|bytes| (start..cursor.at, bytes)));
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

    /// The replacement of this authority, with its length, if h2 refuses it: zeros, which `http` accepts anywhere. It has the
    /// same decoded length, and is not longer when encoded. `None`: the encoding is malformed.
    #[expect(clippy::option_option, reason = "`?` ends the walk of a malformed block")]
    fn refused(&self) -> Option<Option<Vec<u8>>> {
        let value = if self.coded { Cow::Owned(decode(self.data)?) } else { Cow::Borrowed(self.data) };
        if value.is_empty() || Authority::try_from(&*value).is_ok() {
            return Some(None);
        }
        let data = if self.coded { coded_zeros(value.len()) } else { vec![b'0'; value.len()] };
        let mut bytes = length(self.coded, data.len());
        bytes.extend(data);
        Some(Some(bytes))
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

/// `count` zeros, Huffman-coded: five bits of zeros for each, and padding of ones. No symbol has a shorter code.
fn coded_zeros(count: usize) -> Vec<u8> {
    let bits = 5 * count;
    let mut data = vec![0; bits.div_ceil(8)];
    if let (Some(last), used @ 1..) = (data.last_mut(), bits % 8) {
        *last = 0xff >> used;
    }
    data
}

/// The number of codes of each length in bits, from none to the longest.
pub(super) const COUNTS: [u8; 31] =
    [0, 0, 0, 0, 0, 10, 26, 32, 6, 0, 5, 3, 2, 6, 2, 3, 0, 0, 0, 3, 8, 13, 26, 29, 12, 4, 15, 19, 29, 0, 3];
/// The symbols in the order of their codes.
pub(super) const SYMBOLS: [u8; 256] = [
    48, 49, 50, 97, 99, 101, 105, 111, 115, 116, 32, 37, 45, 46, 47, 51, 52, 53, 54, 55, 56, 57, 61, 65, 95,
    98, 100, 102, 103, 104, 108, 109, 110, 112, 114, 117, 58, 66, 67, 68, 69, 70, 71, 72, 73, 74, 75, 76, 77,
    78, 79, 80, 81, 82, 83, 84, 85, 86, 87, 89, 106, 107, 113, 118, 119, 120, 121, 122, 38, 42, 44, 59, 88,
    90, 33, 34, 40, 41, 63, 39, 43, 124, 35, 62, 0, 36, 64, 91, 93, 126, 94, 125, 60, 96, 123, 92, 195, 208,
    128, 130, 131, 162, 184, 194, 224, 226, 153, 161, 167, 172, 176, 177, 179, 209, 216, 217, 227, 229, 230,
    129, 132, 133, 134, 136, 146, 154, 156, 160, 163, 164, 169, 170, 173, 178, 181, 185, 186, 187, 189, 190,
    196, 198, 228, 232, 233, 1, 135, 137, 138, 139, 140, 141, 143, 147, 149, 150, 151, 152, 155, 157, 158,
    165, 166, 168, 174, 175, 180, 182, 183, 188, 191, 197, 231, 239, 9, 142, 144, 145, 148, 159, 171, 206,
    215, 225, 236, 237, 199, 207, 234, 235, 192, 193, 200, 201, 202, 205, 210, 213, 218, 219, 238, 240, 242,
    243, 255, 203, 204, 211, 212, 214, 221, 222, 223, 241, 244, 245, 246, 247, 248, 250, 251, 252, 253, 254,
    2, 3, 4, 5, 6, 7, 8, 11, 12, 14, 15, 16, 17, 18, 19, 20, 21, 23, 24, 25, 26, 27, 28, 29, 30, 31, 127,
    220, 249, 10, 13, 22,
];

/// Decodes `data`. `None`: a code is invalid, or the padding is not at most seven bits of ones.
fn decode(data: &[u8]) -> Option<Vec<u8>> {
    let mut decoded = Vec::with_capacity(data.len() * 8 / 5);
    let mut bits = data.iter().flat_map(|byte| (0..8).rev().map(move |place| usize::from(byte >> place & 1)));
    loop {
        // The first code of the length that is read so far, and the place of its symbol.
        let (mut code, mut first, mut place) = (0, 0, 0);
        let mut counts = COUNTS.iter().map(|count| usize::from(*count)).enumerate();
        loop {
            let (length, count) = counts.next()?;
            if code - first < count {
                decoded.extend(SYMBOLS.get(place + code - first));
                break;
            }
            let Some(bit) = bits.next() else {
                return (length < 8 && code == (1 << length) - 1).then_some(decoded);
            };
            (code, first, place) = (code << 1 | bit, (first + count) << 1, place + count);
        }
    }
}

#[cfg(test)]
mod tests {
    use loona_hpack::huffman::HuffmanDecoder;

    use super::*;
    use crate::tests::wire::encode;

    #[test]
    fn every_byte_has_the_code_of_the_specification() {
        for first in 0..=u8::MAX {
            for value in [vec![first], vec![first, b'a'], vec![b'%', first, first]] {
                let data = encode(&value);
                assert_eq!(HuffmanDecoder::new().decode(&data).unwrap(), value);
                assert_eq!(decode(&data).unwrap(), value);
            }
        }
        assert_eq!(decode(&[]), Some(vec![]));
        // From the specification, appendix C.4.1.
        let example = [0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff];
        assert_eq!(decode(&example).unwrap(), b"www.example.com");
    }

    #[test]
    fn zeros_are_coded_like_any_text() {
        for count in 0..20 {
            assert_eq!(coded_zeros(count), encode(&vec![b'0'; count]));
        }
    }
}
