//! Shortens messages to fit the headers of a response.

/// Bytes of headers for the message. gRPC for Java and the C core accept 8 KiB of headers in all, and replace a larger
/// response with an error without the message.
const ROOM: usize = 5632;

/// Removes the middle of a message that is too long: it begins with what failed, and ends with the reason.
pub(super) fn fitted(message: String) -> String {
    let half = |characters: &mut dyn Iterator<Item = char>| {
        let mut used = 0;
        let fitting = characters.take_while(|character| {
            used += thirds(*character);
            used <= 3 * ROOM / 2
        });
        fitting.map(char::len_utf8).sum::<usize>()
    };
    let (head, tail) = (half(&mut message.chars()), half(&mut message.chars().rev()));
    match (message.get(..head), message.get(message.len() - tail..)) {
        (Some(head), Some(tail)) if head.len() + tail.len() < message.len() => format!("{head} … {tail}"),
        _ => message,
    }
}

/// Size of a character in thirds of a byte, in `grpc-message` (percent-encoded) and `grpc-status-details-bin` (base64)
/// together.
fn thirds(character: char) -> usize {
    let length = character.len_utf8();
    let plain = character.is_ascii_graphic() && !"\"#%<>`?{}".contains(character);
    (if plain { 1 } else { 3 * length }) * 3 + length * 4
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_message_stays_as_it_is() {
        let message = format!("plugin `/p` failed: {}", "no session ".repeat(186)); // 2 KiB
        assert_eq!(fitted(message.clone()), message);
    }

    #[test]
    fn a_long_one_keeps_its_start_and_its_end() {
        for filler in ["x", " ", "é", "日", "\u{1f511}"] {
            let message = format!("plugin failed: {}: try again", filler.repeat(10_000));
            let fitted = fitted(message);
            assert!(fitted.starts_with("plugin failed: ") && fitted.ends_with(": try again"), "{fitted}");
            let used = fitted.chars().map(thirds).sum::<usize>() / 3;
            assert!((ROOM - 100..=ROOM + 30).contains(&used), "{filler:?}: {used}");
        }
    }
}
