use proptest::prelude::*;

use super::*;

const fn nanos(count: u64) -> Duration {
    Duration::from_nanos(count)
}

#[test]
fn durations_are_read_as_go_reads_them() {
    for (text, expected) in [
        ("0", 0),
        ("+0", 0),
        ("0s", 0),
        ("5s", 5 * SECOND),
        ("+5s", 5 * SECOND),
        ("1478s", 1478 * SECOND),
        ("5.0s", 5 * SECOND),
        ("5.6s", 5_600_000_000),
        ("5.s", 5 * SECOND),
        (".5s", SECOND / 2),
        ("1.004s", 1_004_000_000),
        ("100.00100s", 100_001_000_000),
        ("10ns", 10),
        ("11us", 11_000),
        ("12\u{b5}s", 12_000),
        ("12\u{3bc}s", 12_000),
        ("13ms", 13_000_000),
        ("3h30m", 12_600 * SECOND),
        ("10.5s4m", 250_500_000_000),
        ("1h1h", 2 * HOUR),
        ("1h2m3s4ms5us6ns", 3_723_004_005_006),
        ("39h9m14.425s", 140_954_425_000_000),
        ("52763797000ns", 52_763_797_000),
        ("0.3333333333333333333h", 1_199_999_999_999),
        ("0.100000000000000000000h", 6 * MINUTE),
        ("0.830103483285477580700h", 2_988_372_539_827),
        ("9223372036854775807ns", LONGEST),
        ("9223372036854775.807us", LONGEST),
        ("2562047h47m16.854775807s", LONGEST),
        ("0.9223372036854775807h", 3_320_413_933_267),
        (".0000000001s", 0),
        ("007s", 7 * SECOND),
    ] {
        assert_eq!(parse(text), Ok(nanos(expected)), "{text}");
    }
}

#[test]
fn each_text_that_is_not_a_duration_has_its_reason() {
    use DurationError::{Empty, Negative, Syntax, TooLong, UnitMissing, UnitUnknown};
    let no_unit = |number: &str| UnitMissing(number.to_owned());
    for (text, error) in [
        ("", Empty),
        ("+", Empty),
        ("3", no_unit("3")),
        ("30", no_unit("30")),
        ("1.5", no_unit("1.5")),
        ("00", no_unit("00")),
        ("1h30", no_unit("30")),
        ("-1s", Negative),
        ("-0", Negative),
        ("s", Syntax),
        (".", Syntax),
        (".s", Syntax),
        ("+.s", Syntax),
        ("++1s", Syntax),
        ("soon", Syntax),
        (" 1s", Syntax),
        ("inf", Syntax),
        ("1.2.3s", no_unit("1.2")),
        ("1d", UnitUnknown),
        ("1S", UnitUnknown),
        ("1 s", UnitUnknown),
        ("1s ", UnitUnknown),
        ("1s 2m", UnitUnknown),
        ("1,5s", UnitUnknown),
        ("1e3s", UnitUnknown),
        ("1\u{e9}", UnitUnknown),
        ("9223372036854775808ns", TooLong),
        ("9223372036854775.808us", TooLong),
        ("2562047h47m16.854775808s", TooLong),
        ("9223372036854ms775us808ns", TooLong),
        ("3000000h", TooLong),
        ("99999999999999999999s", TooLong),
    ] {
        assert_eq!(parse(text), Err(error), "{text:?}");
    }
}

#[test]
fn an_option_has_bounds_and_its_messages_say_what_to_write() {
    let bounds = nanos(MILLISECOND)..=Duration::from_secs(24 * 3600);
    for text in ["1ms", "24h", "1440m"] {
        assert!(parse_within(text, bounds.clone()).is_ok(), "{text}");
    }
    let refusal = |text| parse_within(text, bounds.clone()).unwrap_err().to_string();
    for text in ["0", "999us", "24h1ns", "25h"] {
        assert_eq!(refusal(text), "it must be from 1ms to 24h", "{text}");
    }
    assert_eq!(refusal("1h30"), "`30` has no unit; for seconds, write `30s`");
    assert_eq!(refusal("5d"), "unknown unit; the units are `h`, `m`, `s`, `ms`, `us` and `ns`");
    assert_eq!(refusal("3000000h"), "it is longer than 2562047h47m16.854775807s");
}

#[test]
fn durations_are_written_as_go_writes_them_without_zeros_at_the_end() {
    for (duration, expected) in [
        (0, "0s"),
        (1, "1ns"),
        (999, "999ns"),
        (1_100, "1.1\u{b5}s"),
        (1_000_000, "1ms"),
        (2_200_000, "2.2ms"),
        (500_000_000, "500ms"),
        (999_999_999, "999.999999ms"),
        (SECOND, "1s"),
        (1_500_000_000, "1.5s"),
        (1_000_000_001, "1.000000001s"),
        (45 * SECOND, "45s"),
        (MINUTE, "1m"),
        (245 * SECOND, "4m5s"),
        (HOUR, "1h"),
        (90 * MINUTE, "1h30m"),
        (HOUR + 5 * SECOND, "1h0m5s"),
        (HOUR + 1, "1h0m0.000000001s"),
        (8760 * HOUR, "8760h"),
        (LONGEST, "2562047h47m16.854775807s"),
    ] {
        assert_eq!(text(nanos(duration)), expected);
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read_as_the_same(count in prop_oneof![0..=LONGEST, 0..1_000_u64, 0..SECOND, (0..9_000_000_u64).prop_map(|seconds| seconds * SECOND)]) {
        let written = text(nanos(count));
        prop_assert_eq!(parse(&written), Ok(nanos(count)), "{}", written);
    }

    #[test]
    fn no_text_ends_the_process(text in "[+-]?([0-9]{0,22}\\.?[0-9]{0,22}(ns|us|ms|s|m|h|d|\u{b5}s)?){0,3}|.*") {
        if let Ok(duration) = parse(&text) {
            prop_assert!(duration <= nanos(LONGEST));
        }
    }
}
