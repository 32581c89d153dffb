//! Tables of client authorities and malformed blocks, and property tests.

mod any;
mod stream;
pub(crate) mod wire;

use loona_hpack::Decoder;

use super::{
    frames::HELD,
    property::{accepted, check, filtered},
};
use wire::{Field, HELLO, authority, frame, framed, headers, text};

/// Index of the newest entry of the dynamic table.
const FIRST: u8 = 62;

/// Filters a connection of these frames, checks the properties, and returns the frames.
fn through(frames: &[u8]) -> Vec<u8> {
    let bytes = [HELLO, frames].concat();
    check(&bytes, &[1]);
    filtered(&bytes, &[])[HELLO.len()..].to_vec()
}

/// The authority in a frame without padding and priority.
fn authority_of(frame: &[u8]) -> Vec<u8> {
    let fields = Decoder::new().decode(&frame[9..]).unwrap();
    fields.into_iter().find(|(name, _)| name == b":authority").unwrap().1
}

#[test]
fn what_clients_send_for_a_socket_is_accepted_and_nothing_else_changes() {
    let captured = include_str!("captured.txt").lines().filter(|line| !line.starts_with('#'));
    for line in captured {
        let [client, sent, hex] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        let frame: Vec<u8> =
            (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect();
        assert_eq!(authority_of(&frame), sent.as_bytes(), "{client}");
        let after = through(&frame);
        assert!(accepted(&authority_of(&after)), "{client}");
        assert!(after.len() <= frame.len(), "{client}");
        let same = after == frame;
        assert_eq!(same, sent == "localhost", "{client}");
        let without = |frame: &[u8]| {
            let fields = Decoder::new().decode(&frame[9..]).unwrap();
            fields.into_iter().filter(|(name, _)| name != b":authority").collect::<Vec<_>>()
        };
        assert_eq!(without(&after), without(&frame), "{client}");
    }
}

#[test]
fn only_what_http_refuses_is_replaced() {
    let accepted = ["localhost", "localhost:8080", "[::1]:443", "user%20name@host", ""];
    let refused = [
        "/run/broker.sock",
        "run%2Fbroker.sock",
        "unix:/run/broker.sock",
        "./relative path",
        "C:\\broker",
        "host:1:2",
        "user@",
        "[::1",
        "what?#",
        "\u{0}abstract",
        "/run/brök",
    ];
    let same = accepted.map(|sent| (sent, sent.to_owned()));
    let replaced = refused.map(|sent| (sent, "0".repeat(sent.len())));
    for (sent, expected) in same.into_iter().chain(replaced) {
        for coded in [false, true] {
            let after = through(&headers(&authority(sent.as_bytes(), coded)));
            assert_eq!(String::from_utf8(authority_of(&after)).unwrap(), expected, "{sent} coded: {coded}");
        }
    }
}

#[test]
fn any_byte_is_replaced_by_one_that_is_accepted() {
    for byte in 0..=u8::MAX {
        for (value, coded) in [[byte, b'/'], [b'a', byte]].iter().flat_map(|v| [(v, false), (v, true)]) {
            let frame = headers(&authority(value, coded));
            let after = authority_of(&through(&frame));
            assert!(accepted(&after), "{value:?} became {after:?}");
            assert_eq!(after.len(), 2);
        }
    }
}

#[test]
fn every_way_to_write_the_field_is_found() {
    let path = b"/run/broker.sock";
    for (coded, prefix) in [false, true].iter().flat_map(|coded| [0x40, 0, 0x10].map(|p| (*coded, p))) {
        let value = text(path, coded);
        let by_index = [vec![prefix | 1], value.clone()].concat();
        let by_name = [vec![prefix], text(b":authority", false), value.clone()].concat();
        let by_coded_name = [vec![prefix], text(b":authority", true), value.clone()].concat();
        for field in [by_index, by_name, by_coded_name] {
            assert_eq!(authority_of(&through(&headers(&field))), [b'0'; 16]);
        }
        // Another field with the same value.
        let path = [vec![prefix | 4], value.clone()].concat();
        assert_eq!(through(&headers(&path)), headers(&path));
        let long = [vec![prefix], text(b":authorities", coded), value].concat();
        assert_eq!(through(&headers(&long)), headers(&long));
    }
}

#[test]
fn a_name_from_the_dynamic_table_stays() {
    let first = headers(&Field::literal(0x40, b":authority", b"host").bytes());
    let second = headers(&[vec![0x40 | FIRST], text(b"/run/x", false)].concat());
    let both = [first, second].concat();
    assert_eq!(through(&both), both);
}

#[test]
fn both_tables_stay_in_step() {
    let first = headers(&authority(b"/run/broker.sock", true));
    let second = headers(&Field::literal(0x40, b"x-more", b"1").bytes());
    let third = headers(&[0x80 | (FIRST + 1), 0x80 | FIRST]);
    let after = through(&[first, second.clone(), third.clone()].concat());
    let harmless = headers(&authority(&[b'0'; 16], true));
    assert_eq!(after, [harmless.clone(), second.clone(), third].concat());
    let mut decoder = Decoder::new();
    decoder.decode(&harmless[9..]).unwrap();
    decoder.decode(&second[9..]).unwrap();
    let entry = |name: &[u8], value: &[u8]| (name.to_vec(), value.to_vec());
    let expected = [entry(b":authority", &[b'0'; 16]), entry(b"x-more", b"1")];
    assert_eq!(decoder.decode(&[0x80 | (FIRST + 1), 0x80 | FIRST]).unwrap(), expected);
}

/// Zeros have the shortest code, so the frame becomes shorter and the following bytes move up.
#[test]
fn a_frame_with_longer_codes_is_shortened() {
    let block =
        [authority("\u{1}\u{2}".as_bytes(), true), Field::literal(0, b"te", b"trailers").bytes()].concat();
    let next = [frame(0, 0, &[7; 40]), headers(&authority(b"/", false))].concat();
    let after = through(&[headers(&block), next].concat());
    let expected = [authority(b"00", true), Field::literal(0, b"te", b"trailers").bytes()].concat();
    let next = [frame(0, 0, &[7; 40]), headers(&authority(b"0", false))].concat();
    assert_eq!(after, [headers(&expected), next].concat());
    // Also if the encoded length of the string becomes shorter.
    let long = text(&[1; 400], true);
    let field = [vec![0x41], long].concat();
    assert_eq!(authority_of(&through(&headers(&field))), [b'0'; 400]);
}

#[test]
fn a_block_in_any_pieces_with_padding_and_priority_is_filtered() {
    let block = [authority(b"/run/broker.sock", true), authority(b"\x01/\xff", true)].concat();
    for split in 0..=block.len() {
        for (padding, priority) in [(None, false), (Some(0), true), (Some(9), false), (Some(200), true)] {
            let after = through(&framed(&block, &[split, 1, 2], padding, priority));
            assert_ne!(after, framed(&block, &[split, 1, 2], padding, priority));
        }
    }
}

#[test]
fn a_block_of_16_kib_is_filtered_and_a_larger_one_passes() {
    let path = authority(b"/run/broker.sock", false);
    let block = |size: usize| {
        let filler = size - path.len() - 6;
        let value = vec![b'x'; filler];
        let block = [path.clone(), Field::literal(0, b"x", &value).bytes()].concat();
        assert_eq!(block.len(), size);
        block
    };
    let largest = headers(&block(HELD - 9));
    assert_eq!(through(&largest).len(), HELD);
    assert_ne!(through(&largest), largest);
    let larger = headers(&block(HELD - 8));
    let continued = framed(&block(HELD - 17), &[100], None, false);
    assert_eq!(continued.len(), HELD + 1);
    for passing in [larger, continued] {
        // The next block is filtered again.
        let frames = [passing.clone(), headers(&path)].concat();
        let after = through(&frames);
        assert_eq!(after[..passing.len()], passing);
        assert_eq!(authority_of(&after[passing.len()..]), [b'0'; 16]);
    }
}

#[test]
fn what_is_malformed_passes_as_it_is() {
    let path = authority(b"/run/x", false);
    let and = |more: &[u8]| headers(&[&path[..], more].concat());
    let table = [
        ("a text is cut off", headers(&path[..path.len() - 1])),
        ("a text without its length", and(&[0x41])),
        ("a name without a value", and(&[0x40, 1, b'x'])),
        ("an integer without an end", and(&[0xff, 0x80, 0x80])),
        ("an integer of six bytes", and(&[0xff, 0x80, 0x80, 0x80, 0x80, 0])),
        ("the end-of-string symbol", headers(&[0x41, 0x84, 0xff, 0xff, 0xff, 0xff])),
        ("a byte of padding", headers(&[0x41, 0x82, 0x1f, 0xff])),
        ("padding of zeros", headers(&[0x41, 0x81, 0b0110_0000])),
        ("more padding than payload", frame(1, 0x4 | 0x8, &[[0xff].as_slice(), &path].concat())),
        ("padded and empty", frame(1, 0x4 | 0x8, &[])),
        ("half a priority", frame(1, 0x4 | 0x20, &[0, 0])),
        ("no end of the block", [frame(1, 0, &path), frame(0, 0, &[])].concat()),
        ("another stream's continuation", {
            let mut other = frame(9, 0x4, &[]);
            other[8] = 3;
            [frame(1, 0, &path), other].concat()
        }),
        ("a continuation by itself", frame(9, 0x4, &path)),
        ("a frame that is cut off", headers(&path)[..12].to_vec()),
        ("a head that is cut off", frame(1, 0, &path)[..5].to_vec()),
        ("a promise", frame(5, 0x4, &path)),
    ];
    for (what, frames) in table {
        assert_eq!(through(&frames), frames, "{what}");
    }
}

#[test]
fn another_protocol_passes_as_it_is() {
    let frames = headers(&authority(b"/run/x", false));
    for preface in ["GET / HTTP/1.1\r\n\r\n12345678", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r ", ""] {
        check(&[preface.as_bytes(), &frames].concat(), &[1]);
    }
}
