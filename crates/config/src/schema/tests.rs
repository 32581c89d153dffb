use super::*;

#[test]
fn a_duration_is_a_whole_number_and_a_unit() {
    for (text, expected) in [("30s", 30), ("10m", 600), ("12h", 43_200), ("007s", 7)] {
        assert_eq!(seconds(text), Some(Duration::from_secs(expected)), "{text}");
    }
    for text in ["", "s", "0s", "30", "-1s", "+1s", "1.5h", "1h30m", "1 s", "1S", "1d", "99999999999s", "é"]
    {
        assert_eq!(seconds(text), None, "{text}");
    }
}

#[test]
fn a_mode_is_one_that_a_socket_can_use() {
    for (text, expected) in
        [("0600", 0o600), ("600", 0o600), ("0660", 0o660), ("0666", 0o666), ("0620", 0o620)]
    {
        assert_eq!(mode(text), Some(expected), "{text}");
    }
    for text in ["", "0", "0400", "0060", "0700", "0670", "4600", "00600", "0o600", "+600", "0680", "rw"] {
        assert_eq!(mode(text), None, "{text}");
    }
}
