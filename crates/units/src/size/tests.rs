use proptest::prelude::*;

use super::*;

#[test]
fn sizes_are_read_as_kubernetes_reads_them() {
    for (text, expected) in [
        ("0", 0),
        ("1", 1),
        ("+1", 1),
        ("0660", 660),
        ("67108864", 64 << 20),
        ("64Mi", 64 << 20),
        ("1Gi", 1 << 30),
        ("1.5Gi", 3 << 29),
        (".5Ki", 512),
        ("1.Ki", 1024),
        ("500k", 500_000),
        ("1M", 1_000_000),
        ("2G", 2_000_000_000),
        ("1T", 1_000_000_000_000),
        ("3P", 3_000_000_000_000_000),
        ("1E", 1_000_000_000_000_000_000),
        ("1Ti", 1 << 40),
        ("1Pi", 1 << 50),
        ("15Ei", 15 << 60),
        ("1e6", 1_000_000),
        ("1.5E3", 1_500),
        ("12e+2", 1_200),
        ("1.0", 1),
        ("18446744073709551615", u64::MAX),
    ] {
        assert_eq!(parse(text), Ok(expected), "{text}");
    }
}

#[test]
fn each_text_that_is_not_a_size_has_its_reason() {
    use SizeError::{Empty, Milli, Negative, NotWhole, Syntax, TooLarge, UnitUnknown};
    for (text, error) in [
        ("", Empty),
        ("+", Empty),
        ("-1", Negative),
        ("Mi", Syntax),
        (".", Syntax),
        (" 1", Syntax),
        ("much", Syntax),
        ("64MB", UnitUnknown),
        ("64MiB", UnitUnknown),
        ("64mi", UnitUnknown),
        ("64K", UnitUnknown),
        ("64 Mi", UnitUnknown),
        ("1Mi1Ki", UnitUnknown),
        ("1u", UnitUnknown),
        ("1e", UnitUnknown),
        ("1e-3", UnitUnknown),
        ("1e100", UnitUnknown),
        ("1e++1", UnitUnknown),
        ("100m", Milli),
        ("1.5", NotWhole),
        ("0.0001k", NotWhole),
        ("0.1Ki", NotWhole),
        ("16Ei", TooLarge),
        ("18446744073709551616", TooLarge),
        ("1e20", TooLarge),
        ("19E", TooLarge),
        ("15.99999999999999999999999Ei", NotWhole),
    ] {
        assert_eq!(parse(text), Err(error), "{text:?}");
    }
}

#[test]
fn sizes_are_written_short_and_exact() {
    for (bytes, expected) in [
        (0, "0"),
        (1, "1"),
        (1023, "1023"),
        (1024, "1Ki"),
        (1000, "1k"),
        (64 << 20, "64Mi"),
        (3 << 29, "1536Mi"),
        (500_000, "500k"),
        (64_000_000, "64M"),
        (1_024_000, "1000Ki"),
        (u64::MAX, "18446744073709551615"),
        (1 << 60, "1Ei"),
    ] {
        assert_eq!(text(bytes), expected);
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read_as_the_same(bytes in prop_oneof![any::<u64>(), (0..4096_u64).prop_map(|count| count << 20), (0..4096_u64).prop_map(|count| count * 1000)]) {
        let written = text(bytes);
        prop_assert_eq!(parse(&written), Ok(bytes), "{}", written);
    }

    #[test]
    fn no_text_ends_the_process(text in "[+-]?[0-9]{0,22}\\.?[0-9]{0,22}([KMGTPE]i?|[kmn]|[eE][+-]?[0-9]{0,4})?|.*") {
        let _read = parse(&text);
    }
}
