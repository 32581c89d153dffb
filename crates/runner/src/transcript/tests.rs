use super::*;

fn lines(pieces: &[&[u8]]) -> Vec<String> {
    let mut transcript = Transcript::default();
    for piece in pieces {
        transcript.push(piece);
    }
    transcript.flush();
    transcript.after(0).map(|line| line.to_string()).collect()
}

#[test]
fn lines_are_those_that_were_written_in_any_pieces() {
    for (pieces, expected) in [
        (&[&b""[..]][..], &[][..]),
        (&[b"one\ntwo\n"], &["one", "two"]),
        (&[b"on", b"e\n", b"\ntwo"], &["one", "", "two"]),
        (&[b"one\r\ntwo\r", b"\n"], &["one", "two", ""]),
        (&[b"10%\r20%\rdone\n"], &["10%", "20%", "done"]),
        (&[b"gr\xc3", b"\xb6n\n"], &["grön"]),
        (&[b"  code:  A B  \n"], &["  code:  A B"]),
        (&[b"\x1b[2Jno \xff\xe2\x80\xae\n"], &["U+001B[2Jno \u{fffd}U+202E"]),
    ] {
        assert_eq!(lines(pieces), expected, "{pieces:?}");
    }
}

#[test]
fn the_last_lines_in_one_are_whole_unless_one_is_too_long() {
    for (written, most, expected) in [
        (&b""[..], 100, ""),
        (b"\n \r\n", 100, ""),
        (b"one\r\n\r\n two \n", 100, "one | two"),
        (b"10%\r20%\rdone", 100, "10% | 20% | done"),
        (b"first\nsecond\nthird\n", 11, "second | third"),
        (b"first\nsecond\nthird\n", 10, "third"),
        ("long äöü".as_bytes(), 5, "…öü"),
        ("long äöü\nx".as_bytes(), 6, "x"),
        (b"ok\xff\x1b[1m", 100, "ok\u{fffd}U+001B[1m"),
    ] {
        let mut transcript = Transcript::default();
        transcript.push(written);
        transcript.flush();
        assert_eq!(transcript.last(most), expected);
    }
    let mut transcript = Transcript::default();
    transcript.push(&[b'x'; LINE + 10]);
    transcript.flush();
    assert_eq!(transcript.last(100), format!("…{}", "x".repeat(100)), "it was cut in two");
}

#[test]
fn a_line_without_an_end_is_bounded_and_cut_between_characters() {
    let cut = lines(&["ö".repeat(LINE).as_bytes()]);
    assert_eq!(cut.len(), 2);
    assert!(cut.iter().all(|line| line.len() == LINE && line.chars().all(|character| character == 'ö')));
}

/// What plugins can write, however it arrives.
const HOSTILE: [&[u8]; 14] = [
    b"\x80",
    b"\xbf",
    b"\x80\x81\x9f\xa0\xbf",
    b"x",
    b"\n",
    b"\r",
    b"\r\n",
    b"\x80\r",
    b"\0",
    b"\x1b[2J\x1b]0;title\x07",
    b"\xe2\x82",
    b"\xf0\x9f\x98",
    "\u{1f600}".as_bytes(),
    b"\xff\xfe\xc0",
];

#[test]
fn every_buffer_is_bounded_for_any_bytes() {
    for pattern in HOSTILE {
        let written: Vec<u8> = pattern.iter().copied().cycle().take(300_000).collect();
        for size in [1, 3, LINE + 1, 16 << 10] {
            let mut transcript = Transcript::default();
            for piece in written.chunks(size) {
                transcript.push(piece);
                assert!(transcript.partial.len() <= LINE + LAST, "{pattern:?} in pieces of {size}");
            }
            transcript.flush();
            assert!(transcript.partial.capacity() <= 4 * LINE, "{pattern:?} in pieces of {size}");
            let lines: Vec<_> = transcript.after(0).collect();
            let kept: usize = lines.iter().map(|line| line.len() + EACH).sum();
            assert!(kept == transcript.bytes && kept <= KEPT, "{pattern:?} in pieces of {size}: {kept}");
            assert!(transcript.lines.capacity() <= 2 * KEPT / EACH, "{pattern:?} in pieces of {size}");
        }
    }
}

#[test]
fn bytes_that_are_not_text_are_cut_into_lines() {
    let cut = lines(&[&[0x80; 3 * LINE]]);
    assert_eq!(cut.iter().map(|line| line.chars().count()).sum::<usize>(), 3 * LINE);
    assert_eq!(cut.len(), 3);
}

#[test]
fn only_the_last_lines_are_kept_and_none_is_shown_twice() {
    let mut transcript = Transcript::default();
    for number in 0..10_000 {
        transcript.push(format!("line {number}\n").as_bytes());
    }
    let kept: Vec<_> = transcript.after(0).collect();
    assert!(transcript.bytes <= KEPT && kept.len() > 1000, "{}", kept.len());
    assert_eq!(kept.last().unwrap().as_ref(), "line 9999");
    let last: Vec<_> = transcript.after(9_998).collect();
    assert_eq!(last.iter().map(AsRef::as_ref).collect::<Vec<_>>(), ["line 9998", "line 9999"]);
    assert_eq!((transcript.after(10_000).count(), transcript.count()), (0, 10_000));
}

#[test]
fn empty_lines_are_bounded_too() {
    let mut transcript = Transcript::default();
    transcript.push(&vec![b'\n'; 100_000]);
    assert_eq!(transcript.after(0).count(), KEPT / EACH);
}

#[test]
fn debug_shows_no_line() {
    let mut transcript = Transcript::default();
    transcript.push(b"code canary\nmore canary");
    assert!(!format!("{transcript:?}").contains("canary"));
}
