use proptest::prelude::*;

use super::*;

#[test]
fn what_is_shown_is_read_again() {
    for text in ["1970-01-01T00:00:00Z", "2026-02-28T23:59:59Z", "9999-12-30T22:00:00Z"] {
        assert_eq!(rfc3339(parse(text).unwrap()), text);
    }
    let fraction = SystemTime::UNIX_EPOCH + Duration::from_millis(1999);
    assert_eq!(rfc3339(fraction), "1970-01-01T00:00:01Z");
}

fn seconds(text: &str) -> Option<f64> {
    let time = parse(text)?;
    Some(match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(after) => after.as_secs_f64(),
        Err(before) => -before.duration().as_secs_f64(),
    })
}

#[test]
fn what_client_go_takes_is_taken() {
    for (text, expected) in [
        ("1970-01-01T00:00:00Z", 0.0),
        ("2026-07-24T10:20:30Z", 1_784_888_430.0),
        ("2026-07-24T10:20:30+02:00", 1_784_881_230.0),
        ("2026-07-24T10:20:30-23:59", 1_784_974_770.0),
        ("2026-07-24T10:20:30+00:00", 1_784_888_430.0),
        ("2026-07-24T10:20:30-00:00", 1_784_888_430.0),
        ("2026-07-24T10:20:30.5Z", 1_784_888_430.5),
        ("2026-07-24T10:20:30,25+00:00", 1_784_888_430.25),
        ("1970-01-01T00:00:00.000000001999999999999999999Z", 1e-9),
        ("2024-02-29T00:00:00Z", 1_709_164_800.0),
        ("9999-12-31T23:59:59Z", 253_402_300_799.0),
        ("9999-12-31T23:59:59-23:59", 253_402_387_139.0),
        ("1969-12-31T23:59:59.5Z", -0.5),
        ("0000-01-01T00:00:00Z", -62_167_219_200.0),
    ] {
        assert_eq!(seconds(text), Some(expected), "{text}");
    }
}

#[test]
fn nothing_else_is_taken() {
    for text in [
        "",
        " ",
        "2026-07-24",
        "2026-07-24T10:20:30",
        "2026-07-24T10:20Z",
        "2026-07-24T10:20:30+0200",
        "2026-07-24T10:20:30+02",
        "2026-07-24t10:20:30Z",
        "2026-07-24T10:20:30z",
        "2026-07-24 10:20:30Z",
        "1784888430",
        "2026-07-24T10:20:60Z",
        "2026-07-24T24:00:00Z",
        "2026-07-24T10:60:00Z",
        "2026-06-31T00:00:00Z",
        "2026-02-29T00:00:00Z",
        "2100-02-29T00:00:00Z",
        "2026-13-01T00:00:00Z",
        "2026-00-01T00:00:00Z",
        "2026-01-00T00:00:00Z",
        "2026-07-24T10:20:30+24:00",
        "2026-07-24T10:20:30+02:60",
        "2026-07-24T10:20:30.Z",
        "2026-07-24T10:20:30Z ",
        " 2026-07-24T10:20:30Z",
        "2026-07-24T1:20:30Z",
        "26-07-24T10:20:30Z",
        "12026-07-24T10:20:30Z",
        "-026-07-24T10:20:30Z",
        "2026-7-24T10:20:30Z",
        "2026-07-24T10:20:30ZZ",
        "2026-07-24T10:20:30.5.5Z",
        "2026-07-24T10:20:30 Z",
        "2026-07-24T10:20:30UTC",
        "2026-07-24T10:20:3\u{661}Z",
        "2026-07-24T10:20:30\u{2212}02:00",
        "+2026-07-24T10:20:30Z",
    ] {
        assert_eq!(parse(text), None, "{text}");
    }
}

#[test]
fn the_zero_time_of_go_is_known_in_every_spelling() {
    for text in ["0001-01-01T00:00:00Z", "0001-01-01T00:00:00.000Z", "0001-01-01T01:00:00+01:00"] {
        assert!(is_zero(parse(text).unwrap()), "{text}");
    }
    assert!(!is_zero(parse("0001-01-01T00:00:01Z").unwrap()) && !is_zero(SystemTime::UNIX_EPOCH));
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(text in "[0-9TZ:.,+-]{0,40}|\\PC{0,30}") {
        prop_assert!(parse(&text).is_none() || text.len() >= "2026-07-24T10:20:30Z".len());
    }

    #[test]
    fn it_agrees_with_jiff_where_jiff_is_right(second in -62_135_596_800_i64..253_402_207_200) {
        let text = Timestamp::from_second(second).unwrap().to_string();
        let expected = shift(SystemTime::UNIX_EPOCH, second < 0, Duration::from_secs(second.unsigned_abs()));
        prop_assert_eq!(parse(&text), expected);
    }
}
