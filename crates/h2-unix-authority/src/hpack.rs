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
        let value = if self.coded { Cow::Owned(decode(self.data)?) } else { Cow::Borrowed(self.data) };
        if value.is_empty() || Authority::try_from(&*value).is_ok() {
            return Some(None);
        }
        let harmless: Vec<_> = value.iter().copied().map(harmless).collect();
        Some(Some(if self.coded { encode(&harmless) } else { harmless }))
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

/// Length of each symbol's code in bits.
const LENGTHS: [u8; 256] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, 28, 28,
    28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6,
    6, 6, 7, 8, 15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7,
    8, 13, 19, 13, 14, 6, 15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7,
    15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24,
    23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23,
    23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23, 26, 26, 20, 19, 22, 23, 22, 25, 26,
    26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20,
    21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27,
    27, 27, 26,
];
/// Length of the longest code in bits.
const LONGEST: usize = 30;
const CODES: Codes = Codes::new();

struct Codes {
    /// Codes by symbol.
    of: [u32; 256],
    /// Symbols in the order of their codes.
    ordered: [u8; 256],
    /// The range of codes of each length.
    levels: [CodeLevel; LONGEST + 1],
}

#[derive(Clone, Copy)]
struct CodeLevel {
    first: u32,
    count: u32,
    /// Index in `ordered` of the symbol of `first`.
    place: u32,
}

impl Codes {
    #[expect(clippy::indexing_slicing, reason = "evaluated by the compiler")]
    const fn new() -> Self {
        let mut codes = Self {
            of: [0; 256],
            ordered: [0; 256],
            levels: [CodeLevel { first: 0, count: 0, place: 0 }; LONGEST + 1],
        };
        let (mut code, mut place, mut length) = (0, 0, 1);
        while length <= LONGEST {
            code <<= 1;
            let first = CodeLevel { first: code, count: 0, place };
            let mut symbol = 0_u8;
            loop {
                if LENGTHS[symbol as usize] as usize == length {
                    codes.of[symbol as usize] = code;
                    codes.ordered[place as usize] = symbol;
                    code += 1;
                    place += 1;
                }
                if symbol == u8::MAX {
                    break;
                }
                symbol += 1;
            }
            codes.levels[length] = CodeLevel { count: code - first.first, ..first };
            length += 1;
        }
        codes
    }

    fn symbol(&self, code: u32, length: usize) -> Option<u8> {
        let level = self.levels.get(length)?;
        let after = code.checked_sub(level.first).filter(|after| *after < level.count)?;
        self.ordered.get(usize::try_from(level.place + after).ok()?).copied()
    }
}

/// Decodes `data`. `None`: a code is invalid, or the padding is not at most seven bits of ones.
fn decode(data: &[u8]) -> Option<Vec<u8>> {
    let mut decoded = Vec::with_capacity(data.len() * 8 / 5);
    let (mut code, mut length) = (0, 0);
    for bit in data.iter().flat_map(|byte| (0..8).rev().map(move |place| byte >> place & 1)) {
        (code, length) = (code << 1 | u32::from(bit), length + 1);
        if let Some(symbol) = CODES.symbol(code, length) {
            decoded.push(symbol);
            (code, length) = (0, 0);
        } else if length == LONGEST {
            return None;
        }
    }
    (length < 8 && code == (1 << length) - 1).then_some(decoded)
}

/// Encodes `value`, with padding to a whole byte.
pub(super) fn encode(value: &[u8]) -> Vec<u8> {
    let mut data = Vec::with_capacity(value.len());
    let (mut bits, mut count) = (0_u64, 0);
    for byte in value {
        let code = CODES.of.get(usize::from(*byte)).copied().unwrap_or_default();
        let length = LENGTHS.get(usize::from(*byte)).copied().unwrap_or_default();
        (bits, count) = (bits << length | u64::from(code), count + u32::from(length));
        while count >= 8 {
            count -= 8;
            data.extend((bits >> count).to_be_bytes().last());
        }
    }
    if count > 0 {
        let padded = bits << (8 - count) | 0xff >> count;
        data.extend(padded.to_be_bytes().last());
    }
    data
}

#[cfg(test)]
mod tests {
    use loona_hpack::huffman::HuffmanDecoder;

    use super::*;

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
        assert_eq!(encode(b"www.example.com"), example);
    }
}
